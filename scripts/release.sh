#!/usr/bin/env bash
# Makes the files of a release in target/package, one step each; .github/workflows/release.yml runs them in this order.
#   scripts/release.sh program     builds the program (profile dist, by scripts/ordered.sh), or takes the one that
#                                  HELMDECK_RELEASE_PROGRAM names
#   scripts/release.sh archive     helmdeck-VERSION-TARGET.tar.gz: program, man pages, completions, units, examples
#   scripts/release.sh deb         the Debian package of this machine's architecture
#   scripts/release.sh sbom        the list of all crates in it (CycloneDX, JSON)
#   scripts/release.sh image       the container image helmdeck:VERSION, by docker buildx, buildah or podman
#   scripts/release.sh checksums   SHA256SUMS of all files
#   scripts/release.sh notes TAG   the section of CHANGELOG.md for a tag, or the unreleased one
# Two runs on the same commit make the same archive and the same list of crates, wherever the clone is, if the order of functions is
# the same: it is among the files of a release, for HELMDECK_ORDER_FILE.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/need.sh
source scripts/need.sh
exec </dev/null

package="$PWD/target/package"
files="$package/files"
mkdir -p "$files"
version="$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)"
[[ -n "$version" ]] || fail "Cargo.toml names no version"

target() { rustc -vV | sed -n 's/^host: //p'; }

# Seconds of the commit, so that files have the same times wherever they are made.
epoch() { git log -1 --format=%ct 2>/dev/null || echo 0; }

program() {
    local built="${HELMDECK_RELEASE_PROGRAM:-}"
    if [[ -z "$built" ]]; then
        built="${CARGO_TARGET_DIR:-target}/dist/helmdeck"
        if [[ -n "${HELMDECK_ORDER_FILE:-}" ]]; then
            cargo build --locked --profile dist --bin helmdeck
        else
            scripts/ordered.sh dist
        fi
        rm -f "$files"/*.order
        local order="${HELMDECK_ORDER_FILE:-$built.order}"
        if [[ -e "$order" ]]; then cp "$order" "$files/helmdeck-$version-$(target).order"; fi
    fi
    install -D -m 755 "$built" "$package/program/helmdeck"
    rm -rf "$package/man"
    "$package/program/helmdeck" man "$package/man"
    "$package/program/helmdeck" version
}

has_program() { [[ -x "$package/program/helmdeck" ]] || fail "there is no program yet: scripts/release.sh program"; }

archive() {
    has_program
    local name folder
    name="helmdeck-$version-$(target)"
    folder="$package/$name"
    rm -rf "$folder"
    mkdir -p "$folder/man" "$folder/completions" "$folder/systemd/user" "$folder/examples"
    cp "$package/program/helmdeck" README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$folder"
    cp "$package"/man/*.1 "$folder/man"
    cp src/cli/completion/helmdeck.{bash,zsh,fish} "$folder/completions"
    cp -r packaging/systemd/helmdeck.service packaging/sysusers packaging/systemd/sandbox.conf "$folder/systemd"
    cp packaging/systemd/user/helmdeck.service "$folder/systemd/user"
    cp config/helmdeck.toml config/helmdeck.schema.json "$folder/examples"
    tar --directory "$package" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(epoch)" --mode=u=rwX,go=rX \
        --create "$name" | gzip --no-name --best >"$files/$name.tar.gz"
    rm -rf "$folder"
    say "$files/$name.tar.gz"
}

deb() {
    has_program
    need "dpkg-shlibdeps --version" dpkg-dev
    need_cargo_tool deb cargo-deb@3.8.0
    # cargo-deb looks for the program where cargo puts a release build.
    local built="target/release/helmdeck" kept=""
    if [[ -e "$built" ]]; then
        kept="$package/kept"
        mv "$built" "$kept"
    fi
    install -D -m 755 "$package/program/helmdeck" "$built"
    SOURCE_DATE_EPOCH="$(epoch)" CARGO_TARGET_DIR=target cargo deb --no-build --no-strip --output "$files/" || built_failed=1
    rm -f "$built"
    if [[ -n "$kept" ]]; then mv "$kept" "$built"; fi
    [[ -z "${built_failed:-}" ]] || fail "cargo deb failed"
    say "$(ls "$files"/*.deb)"
}

sbom() {
    need_cargo_tool cyclonedx cargo-cyclonedx@0.5.9
    # It writes a file beside every manifest of the workspace; only the program's is kept.
    SOURCE_DATE_EPOCH="$(epoch)" cargo cyclonedx --format json --spec-version 1.5 --override-filename release-sbom
    sed "s|$PWD|/source|g" release-sbom.json >"$files/helmdeck-$version.cdx.json"
    find . -name release-sbom.json -not -path './target/*' -delete
    say "$files/helmdeck-$version.cdx.json"
}

image() {
    has_program
    local -a arguments=(--build-context "program=$package/program" --tag "helmdeck:$version" "$@" .)
    if docker buildx version >/dev/null 2>&1; then
        docker buildx build --load "${arguments[@]}"
    elif command -v buildah >/dev/null; then
        # HEALTHCHECK is of docker's image format.
        buildah build --format docker "${arguments[@]}"
    else
        command -v podman >/dev/null || fail "none of docker buildx, buildah and podman is here"
        podman build --format docker "${arguments[@]}"
    fi
}

checksums() {
    (cd "$files" && rm -f SHA256SUMS && sha256sum -- * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS && cat SHA256SUMS)
}

notes() {
    local heading="${1#v}"
    grep -q "^## \[\?$heading" CHANGELOG.md || heading=Unreleased
    awk -v heading="$heading" '/^## /{shown = index($0, heading) > 0; next} shown' CHANGELOG.md
}

step="${1:-}"
shift || true
case "$step" in
program | archive | deb | sbom | image | checksums) "$step" "$@" ;;
notes) notes "${1:-v$version}" ;;
*) fail "which step? program, archive, deb, sbom, image, checksums or notes" ;;
esac
