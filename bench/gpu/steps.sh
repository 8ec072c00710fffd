# Sourced by the scripts of a stay on a GPU machine: steps within a budget of seconds, each with a limit of its own, so that a hang costs
# little, and a log. Set before: out (a folder), budget (seconds since the script's start), shows (what a passed step is told by: a grep -E
# pattern). Afterwards: failed (0 or 1), $out/summary.txt.
logs=$(mktemp -d)
failed=0
jobs=()
mkdir -p "$out"
: >"$out/summary.txt"

left() { echo $((budget - SECONDS)); }
say() { printf '%4d s  %s\n' "$SECONDS" "$*" | tee -a "$out/summary.txt"; }

# step NAME LIMIT COMMAND...: runs with a limit, keeps the log, says how it ended.
step() {
  local name=$1 limit=$2 rest begin=$SECONDS rc
  shift 2
  rest=$(left)
  if ((rest < 5)); then
    say "NOT RUN     $name: the budget is spent"
    return 1
  fi
  timeout -k 5 $((limit < rest ? limit : rest)) "$@" >"$logs/$name" 2>&1
  rc=$?
  case $rc in
    0) say "passed      $name ($((SECONDS - begin)) s): $(grep -aE "$shows" "$logs/$name" | tail -1 | cut -c1-150)" ;;
    77) say "SKIPPED     $name: no device" ;;
    124 | 137) say "TIMED OUT   $name ($((SECONDS - begin)) s)" ;;
    *) say "FAILED ($rc)  $name: $(grep -aE 'FAIL|rror|hazard|CUDA|check' "$logs/$name" | head -3 | cut -c1-300 | tr '\n' '|')" ;;
  esac
  return $rc
}
alone() { step "$@" || failed=1; } # what measures
beside() { # in the background: what needs an answer and no speed
  step "$@" &
  jobs+=($!)
}
wait_all() { # for what was started beside each other
  for job in "${jobs[@]}"; do wait "$job" || failed=1; done
  jobs=()
}
gather() { # PREFIX FILE: the logs whose names begin alike in one file
  for log in "$logs/$1"*; do
    [[ -e $log ]] && { echo "=== $(basename "$log")"; cat "$log"; }
  done >"$out/$2"
}
# Says which device there is; exit 1 without one, before anything that takes time.
need_device() {
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv,noheader >"$logs/device" 2>&1 && grep -q . "$logs/device" || {
    say "FAILED      no NVIDIA device here (nvidia-smi: $(head -1 "$logs/device" | cut -c1-120)); nothing was run"
    rm -rf "$logs"
    exit 1
  }
  tee -a "$out/summary.txt" <"$logs/device"
}
