#!/usr/bin/env bash
# Manage the Megatron-LM checkout that comparisons run against.
#
#   ./scripts/switch_mcore.sh status   which commit is checked out, and where main and dev stand
#   ./scripts/switch_mcore.sh dev      newest commit of Megatron-LM's dev branch, for features to come
#   ./scripts/switch_mcore.sh main     back to the commit that this repository records, or else to the main branch
#
# The checkout is 3rdparty/Megatron-LM (or $MCORE_DIR); its files are never edited, and local edits stop a switch.
# Exit codes: 0 done, 1 local edits in the way, 2 usage, 3 no checkout or no network.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
checkout="${MCORE_DIR:-$root/3rdparty/Megatron-LM}"
remote="${MCORE_REMOTE:-origin}"

fail() { # CODE MESSAGE HINT
    echo "error: $2" >&2
    [ -z "${3:-}" ] || echo "hint: $3" >&2
    exit "$1"
}

in_checkout() { git -C "$checkout" "$@"; }

need_checkout() {
    # A submodule that was never initialised is an empty folder inside the outer repository: look for its own .git.
    [ -e "$checkout/.git" ] || fail 3 "no Megatron-LM checkout at $checkout" \
        "git submodule update --init 3rdparty/Megatron-LM, or git clone URL $checkout"
}

refuse_local_edits() {
    [ -z "$(in_checkout status --porcelain --untracked-files=no)" ] || fail 1 \
        "$checkout has local edits; its files are never edited" "git -C $checkout diff shows them"
}

fetch() { # BRANCH
    in_checkout fetch --quiet "$remote" "$1" || fail 3 "cannot fetch branch $1 from $remote of $checkout" \
        "git -C $checkout remote -v"
}

recorded_commit() {
    # The commit that the outer repository records for the submodule; empty where it records none.
    case "$checkout" in
        "$root"/*) git -C "$root" ls-files --stage -- "${checkout#"$root"/}" 2>/dev/null | awk '$1 == "160000" { print $2 }' ;;
    esac
}

describe() { in_checkout log -1 --format='%h %cs %s' "$1" 2>/dev/null || echo "unknown here"; }

status() {
    need_checkout
    local head recorded
    head="$(in_checkout rev-parse HEAD)"
    recorded="$(recorded_commit)"
    echo "checkout  $checkout"
    echo "HEAD      $(describe HEAD)"
    [ -z "$recorded" ] || echo "recorded  $(describe "$recorded")"
    echo "main      $(describe "refs/remotes/$remote/main")"
    echo "dev       $(describe "refs/remotes/$remote/dev")"
    if [ "$head" = "$(in_checkout rev-parse --verify --quiet "refs/remotes/$remote/dev" || true)" ]; then
        echo "on        dev"
    elif [ -n "$recorded" ] && [ "$head" = "$recorded" ]; then
        echo "on        main (the recorded commit)"
    elif [ "$head" = "$(in_checkout rev-parse --verify --quiet "refs/remotes/$remote/main" || true)" ]; then
        echo "on        main"
    else
        echo "on        another commit"
    fi
    [ -z "$(in_checkout status --porcelain --untracked-files=no)" ] || echo "warning: local edits; they make comparisons worthless" >&2
}

switch_dev() {
    need_checkout
    refuse_local_edits
    fetch dev
    in_checkout update-ref "refs/remotes/$remote/dev" FETCH_HEAD
    in_checkout checkout --quiet --detach FETCH_HEAD
    echo "on dev: $(describe HEAD)"
    echo "next: uv sync (without --locked: the lock file belongs to main)"
}

switch_main() {
    need_checkout
    refuse_local_edits
    local recorded
    recorded="$(recorded_commit)"
    if [ -n "$recorded" ]; then
        in_checkout cat-file -e "$recorded^{commit}" 2>/dev/null || in_checkout fetch --quiet "$remote" "$recorded" ||
            fail 3 "cannot fetch the recorded commit $recorded" "git submodule update --init 3rdparty/Megatron-LM"
        in_checkout checkout --quiet --detach "$recorded"
    else
        fetch main
        in_checkout update-ref "refs/remotes/$remote/main" FETCH_HEAD
        in_checkout checkout --quiet --detach FETCH_HEAD
    fi
    echo "on main: $(describe HEAD)"
}

case "${1:-}" in
    status) status ;;
    dev) switch_dev ;;
    main) switch_main ;;
    *) fail 2 "say one of status, dev, main" "./scripts/switch_mcore.sh status" ;;
esac
