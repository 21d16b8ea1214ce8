# Functions of the programs `check` of the stages. A program sources this file and calls `stage` first.

# stage NUMBER [ARGUMENT...]: the stage, and the names of the arguments that the program takes.
stage() {
  number=$1
  shift
  names=("$@")
  folder=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
  root=$(cd "$folder/../../.." && pwd)
  PATH="$root/.venv/bin:$PATH"
  cd "$root"
}

# arguments VALUE...: ends with 2 and says how the program is called, if a value is missing or there are too many.
arguments() {
  if [[ ${1:-} == --help || $# -ne ${#names[@]} ]]; then
    echo "Usage: ${folder#"$root/"}/check ${names[*]}" >&2
    echo "Checks stage $number; ${folder#"$root/"}/STAGE.md says what each command shows." >&2
    [[ ${1:-} == --help ]] && exit 0
    exit 2
  fi
}

# step COMMAND...: prints and runs a command. If it fails, the program ends with 1 and names the page.
step() {
  printf '$ %s\n' "$*"
  local status=0
  "$@" || status=$?
  if [[ $status -ne 0 ]]; then
    echo "✘ Stage $number is not done: \`$*\` ended with $status. Read ${folder#"$root/"}/STAGE.md." >&2
    exit 1
  fi
}

# done_but TEXT: the stage's commands all ended with 0; TEXT names what no command judges.
done_but() {
  echo "✔ Every command of stage $number ended with 0. Look yourself: $1"
}
