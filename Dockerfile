# syntax=docker/dockerfile:1
# Image of helmdeck: `docker buildx build -t helmdeck .` (or `buildah build`, `podman build`).
# A release passes programs that are built already: `--build-context program=FOLDER`, a folder with the file helmdeck.

FROM docker.io/library/rust:1.95-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential curl git valgrind \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY config config
COPY contrib contrib
COPY docs docs
COPY packs packs
COPY scripts scripts
COPY src src
COPY tests tests
RUN scripts/ordered.sh dist && mkdir /program && cp target/dist/helmdeck /program/

FROM scratch AS program
COPY --from=build /program/helmdeck /helmdeck

FROM docker.io/library/debian:bookworm-slim
# git and ssh are for packs over repositories, bubblewrap is the sandbox of packs that run commands.
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap ca-certificates git openssh-client \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 helmdeck \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/helmdeck --shell /usr/sbin/nologin helmdeck \
    && install -d -o helmdeck -g helmdeck -m 755 /etc/helmdeck /etc/helmdeck/packs \
    && install -d -o helmdeck -g helmdeck -m 700 /var/lib/helmdeck
COPY --from=program /helmdeck /usr/bin/helmdeck
# Configuration and packs are in /etc/helmdeck, data is in /var/lib/helmdeck. A server in a container is reached from
# other machines, so callers need a token.
ENV HOME=/var/lib/helmdeck \
    XDG_CONFIG_HOME=/etc \
    XDG_DATA_HOME=/var/lib \
    XDG_CACHE_HOME=/tmp \
    HELMDECK_SERVER__LISTEN=0.0.0.0:7700 \
    HELMDECK_AUTH__API_TOKENS=true
USER 10001:10001
WORKDIR /var/lib/helmdeck
VOLUME /var/lib/helmdeck
EXPOSE 7700
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 CMD ["helmdeck", "health"]
ENTRYPOINT ["helmdeck"]
CMD ["serve"]
