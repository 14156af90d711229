# Cuts the model and the bundle for a machine with a GPU into transfers, for gpu_bundle.sh.

# transfers FOLDER LIMIT PART MODEL BUNDLE: fills FOLDER/transfer01/, transfer02/, ... with at most LIMIT bytes each. First come the parts
# of the model (model.part01, ... of at most PART bytes), then the bundle (bundle.part01, ...). The bundle stays in one part if it has at most
# PART bytes and the last transfer of the model has room for it. Otherwise it is cut into parts of at most PART bytes, one for each transfer
# that has room; new transfers follow if this room is not enough.
transfers() {
  local folder=$1 limit=$2 most=$3 model=$4 bundle=$5 left transfer=1 room=$2 piece=0 at=0 size of place
  rm -rf "$folder"/transfer*
  place() {  # FROM NAME OFFSET BYTES
    mkdir -p "$folder/$(printf 'transfer%02d' $transfer)"
    dd if="$1" of="$folder/$(printf 'transfer%02d' $transfer)/$2" bs=1M iflag=skip_bytes,count_bytes skip="$3" count="$4" status=none
    room=$((room - $4))
  }
  size=$(stat -Lc %s "$model")
  local -a rooms=()
  while [ $at -lt "$size" ]; do
    left=$((size - at))
    [ $left -gt "$most" ] && left=$most
    if [ $left -gt $room ]; then rooms+=("$room") transfer=$((transfer + 1)) room=$limit; fi
    piece=$((piece + 1))
    place "$model" "$(printf 'model.part%02d' $piece)" $at $left
    at=$((at + left))
  done
  rooms+=("$room")
  of=$(stat -Lc %s "$bundle") at=0 piece=0
  if [ "$of" -le $room ] && [ "$of" -le "$most" ]; then
    place "$bundle" bundle.part01 0 "$of"
    return
  fi
  for ((transfer = 1; at < of; ++transfer)); do
    room=${rooms[transfer - 1]:-$limit}
    left=$((of - at))
    [ $left -gt "$room" ] && left=$room
    [ $left -gt "$most" ] && left=$most
    [ "$left" -gt 0 ] || continue
    piece=$((piece + 1))
    place "$bundle" "$(printf 'bundle.part%02d' $piece)" $at $left
    at=$((at + left))
  done
}

# manifest FOLDER LIMIT: adds run_part.sh and files.sha256 to the last transfer, and writes FOLDER/manifest.json: the files of each call with
# bytes and SHA-256, and what each call carries and runs. Each transfer has a call that carries it. The call of the last transfer also runs
# part 1; the calls before it only list their files. Two more calls carry nothing and run parts 2 and 3. Then writes FOLDER/commands.txt, the same for people.
manifest() {
  local folder=$1 limit=$2 last file call command number=0 separator='' sum
  local -a transfers=("$folder"/transfer*)
  last=${transfers[-1]##*/}
  cp scripts/gpu_bundle/run_part.sh "$folder/$last/"
  (cd "$folder" && sha256sum transfer*/*.part*) > "$folder/files.sha256"
  mv "$folder/files.sha256" "$folder/$last/"
  {
    printf '{"schema_version": 1, "most_bytes_of_a_call": %s, "files": [\n' "$limit"
    for file in "$folder"/transfer*/*; do
      call=${file#"$folder/transfer"} call=$((10#${call%%/*}))
      sum=$(sha256sum < "$file")
      printf '%s{"call": %s, "file": "%s", "bytes": %s, "sha256": "%s"}' "$separator" $call "$file" "$(stat -c %s "$file")" "${sum%% *}"
      separator=$',\n'
    done
    printf '\n], "calls": [\n'
    separator=''
    for ((call = 1; call <= ${#transfers[@]} + 2; ++call)); do
      if [ $call -lt ${#transfers[@]} ]; then
        printf '%s{"call": %s, "carry": "%s", "seconds": 60, "command": "ls -l %s"}' "$separator" $call "${transfers[call - 1]}" "${transfers[call - 1]}"
      else
        number=$((number + 1))
        command="bash $folder/$last/run_part.sh $number \\\"\$OUT\\\""
        file=$([ $number != 1 ] || echo "$folder/$last")
        printf '%s{"call": %s, "part": %s, "carry": "%s", "seconds": 600, "command": "%s"}' "$separator" $call $number "$file" "$command"
      fi
      separator=$',\n'
    done
    printf '\n]}\n'
  } > "$folder/manifest.json"
  sed -nE -e 's/^\{"call": ([0-9]+), ("part": ([0-9]), )?"carry": "([^"]*)", "seconds": ([0-9]+), "command": "(.*)"\},?$/call \1\tpart \3\tcarry \4\tat most \5 s\t\6/p' "$folder/manifest.json" |
    sed -e 's/\\"/"/g' -e 's/\tpart \t/\tfiles only\t/' -e 's/\tcarry \t/\tcarry nothing\t/' > "$folder/commands.txt"
}
