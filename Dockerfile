# One image for every role; the command says which: `serve --role scheduler`, `serve --role worker`, `serve --role
# api`, `migrate`. Built from sources alone, run by an ordinary user.

FROM rust:1-bookworm AS build
WORKDIR /build
COPY . .
# The queries were checked when they were recorded (.sqlx): no database is needed to build.
ENV SQLX_OFFLINE=true
RUN cargo build --locked --release --package fencepost --bin fencepost

FROM debian:bookworm-slim
# Certificates, for databases, brokers and targets that speak TLS.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin fencepost
COPY --from=build /build/target/release/fencepost /usr/local/bin/fencepost
USER 10001:10001
# SIGTERM drains: stop intake, finish or release what runs, give the partitions back.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/fencepost"]
CMD ["--help"]
