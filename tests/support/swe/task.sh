#!/usr/bin/env bash
# Makes a real bug to mend out of two releases of one package of PyPI, in the manner of SWE-bench.
#   usage: task.sh PACKAGE OLD NEW PYTHON FOLDER       (PYTHON has pytest; git and pip are needed)
# FOLDER/origin.git   a bare repository, branch main: the old release as one commit, the tests of the new one as the next
# FOLDER/fails        the tests that fail there and pass in the new release, one a line as pytest names them
# FOLDER/gold.patch   what upstream changed in the package's Python files, tests left out, as `git diff` writes it
# The same releases give the same commits: author, dates and messages are fixed.
set -euo pipefail

package=$1 old=$2 new=$3 python=$4 folder=$(realpath -m "$5")
rm -rf "$folder"
mkdir -p "$folder"
work=$(mktemp -d "$folder/making.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=upstream GIT_AUTHOR_EMAIL=upstream@example.invalid GIT_AUTHOR_DATE='2024-01-01T00:00:00Z'
export GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE

# release VERSION: unpacks it into a folder of that name.
release() {
    python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary "$package" -d sdists "$package==$1" >&2
    mkdir "$1"
    tar xzf sdists/"$package-$1".tar.gz -C "$1" --strip-components 1
    rm -rf "$1"/*.egg-info "$1/PKG-INFO"
}

# results FOLDER: a line a test, PASSED or FAILED or ERROR and its name.
results() {
    (cd "$1" && PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 timeout 300 "$python" -m pytest -q -p no:cacheprovider -o addopts="" -rA tests 2>&1) |
        grep -E '^(PASSED|FAILED|ERROR) ' | sed 's/ - .*//' | sort -u
}

release "$old"
release "$new"

git init -q -b main repository
cp -r "$old/." repository
git -C repository add -A
git -C repository commit -q -m "$package $old"
rm -rf repository/tests
cp -r "$new/tests" repository/tests
git -C repository add -A
git -C repository commit -q -m "tests: Those of $new"
results repository >before || true
results "$new" >after || true
comm -12 <(sed -nE 's/^(FAILED|ERROR) //p' before | sort) <(sed -nE 's/^PASSED //p' after | sort) >"$folder/fails"
if [ ! -s "$folder/fails" ]; then
    echo "task.sh: no test of $package $new fails with $old" >&2
    exit 1
fi

cp -r "$new/." repository
git -C repository diff -- '*.py' ':!tests' ':!docs' ':!examples' >"$folder/gold.patch"
git -C repository checkout -q -f main
git clone -q --bare repository "$folder/origin.git"
git -C "$folder/origin.git" remote remove origin
echo "$package $old -> $new: $(grep -c ^PASSED before) tests pass before, $(wc -l <"$folder/fails") more must pass after"
