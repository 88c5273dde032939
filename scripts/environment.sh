# Sourced by commands of this directory; no command itself. Sets `root`, the directory of the checkout.
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

# Prints the interpreter of .venv. Fails, saying what to do, where there is none.
venv_python() {
  if [ ! -x "$root/.venv/bin/python" ]; then
    echo "${0##*/}: $root/.venv/bin/python does not exist: run ./scripts/setup first" >&2
    return 1
  fi
  echo "$root/.venv/bin/python"
}
