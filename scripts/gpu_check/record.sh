# The record of gpu_check.sh: one JSON file for each part of the check, with one line for each stage. The file is replaced as a whole after
# every stage, so an interrupted run leaves the stages that had ended. scripts/gpu_check/stages.py reads it.
#   {"schema_version": 2, "part": 1, "device": "nvidia-h200", "backend": "cuda", "dry_run": false, "stages": {
#   "machine": {"stage": "machine", "status": "ok", "date": ..., "seconds": ..., "data": ...},
#   ...
#   }}

record_file() { echo "$out/check-part$1.json"; }

record_head() {  # PART
  printf '{"schema_version": 2, "part": %s, "device": %s, "backend": %s, "dry_run": %s, "stages": {\n' "$1" "$(json_string "$device_name")" "$(json_string "$backend")" "$dry_run"
}

# Ends the check if the record of a part exists but cannot be continued. Changes nothing.
require_record() {  # PART
  local file head expected
  file=$(record_file "$1")
  [ -e "$file" ] || return 0
  IFS= read -r head < "$file" || head=''
  expected=$(record_head "$1")
  if ! is_json "$file" || [[ $head != '{"schema_version": 2, "part": '* ]] || sed -e 1d -e '$d' "$file" | grep -qvE '^"[a-z0-9_]+": \{.*\},?$'; then
    fail "$file is damaged: it is no record that gpu_check.sh wrote. Move it away, or choose another --out."
  fi
  if [ "$head" != "$expected" ]; then
    fail "$file is a record of $(sed -E 's/.*"device": "([^"]*)", "backend": "([^"]*)", "dry_run": ([a-z]*),.*/device \1, backend \2, dry_run \3/' <<< "$head"), but this check is of device $device_name, backend $backend, dry_run $dry_run. Choose another --out."
  fi
}

# record_stage PART NAME ENTRY-FILE: adds the entry, one line of JSON, or replaces the entry of that name.
record_stage() {
  local file
  file=$(record_file "$1")
  {
    record_head "$1"
    {
      if [ -f "$file" ]; then sed -e 1d -e '$d' -e 's/,$//' "$file" | grep -v "^\"$2\": "; fi
      printf '"%s": ' "$2"
      cat "$3"
    } | sed '$!s/$/,/'
    echo '}}'
  } > "$file.new" && sync "$file.new" && mv "$file.new" "$file" ||
    fail "cannot write $file. The results of earlier stages are kept."
}

# previous PART NAME: prints date and status of the entry that a new one would replace; nothing if there is none.
previous() {
  local file
  file=$(record_file "$1")
  [ ! -f "$file" ] || sed -nE "s/^\"$2\": \{\"stage\": \"$2\", \"status\": \"([a-z]*)\", \"date\": \"([^\"]*)\".*/\2, \1/p" "$file"
}
