# Shared by the demo scripts. Sourced, not run.
root=$(cd "$(dirname "$0")/.." && pwd)
say() { printf '%s\n' "$*"; }
bold() { if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then printf '\033[1m%s\033[0m\n' "$*"; else printf '%s\n' "$*"; fi; }
stop_with() { printf '%s\n' "$*" >&2; exit 1; }

# Containers, mounts and loop devices need root: ask sudo once, keep what points at the data folder.
become_root() {
  [ "$(id -u)" = 0 ] && return
  command -v sudo >/dev/null 2>&1 || stop_with "The demo needs root (containers, mounts, loop devices): run it as root or install sudo."
  exec sudo --preserve-env=DATA,PORT,HOME,NO_COLOR sh "$0" "$@"
}

data_folder() {
  DATA=${DATA:-${ANYCHIP_DATA:-${XDG_DATA_HOME:-$HOME/.local/share}/anychip}}
  mkdir -p "$DATA" || stop_with "Cannot make the data folder $DATA: choose another with DATA=DIR."
  DATA=$(cd "$DATA" && pwd)
  export ANYCHIP_DATA="$DATA"
}

anychip() { "$root/build/anychip" "$@"; }
json_field() { python3 -c 'import json,sys; v=json.load(sys.stdin)
for k in sys.argv[1:]: v=v[int(k) if k.lstrip("-").isdigit() else k]
print(v)' "$@"; }
run_state() { anychip show "$1" -o json 2>/dev/null | json_field state 2>/dev/null || true; }
# The name of an earlier demo's run is free again: its disks go, its HTML report stays.
forget() {
  [ -n "$(run_state "$1")" ] || return 0
  anychip stop "$1" --wait >/dev/null 2>&1 || true
  anychip down "$1" --yes >/dev/null || stop_with "The earlier run '$1' could not be removed: see 'anychip show $1'."
}
elapsed() { say "   ($(( $(date +%s) - started )) s since the start)"; }
