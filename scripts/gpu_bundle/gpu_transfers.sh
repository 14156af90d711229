# Cuts the bundle for a machine with a GPU into transfers, for gpu_bundle.sh.

# transfers FOLDER LIMIT PART MODEL BUNDLE: fills FOLDER/transfer01/, transfer02/, ... with at most LIMIT bytes each. First come the parts
# of the model (model.part01, ... of at most PART bytes), then the bundle (bundle.part01, ...). The bundle stays in one part if the last
# transfer of the model has room for it. Otherwise it is cut so that its parts fill the room that the model leaves in all transfers.
transfers() {
  local folder=$1 limit=$2 most=$3 model=$4 bundle=$5 left transfer=1 room=$2 piece=0 at=0 size of place
  rm -rf "$folder"/transfer*
  place() {  # FROM NAME OFFSET BYTES
    mkdir -p "$folder/$(printf 'transfer%02d' $transfer)"
    dd if="$1" of="$folder/$(printf 'transfer%02d' $transfer)/$2" bs=1M iflag=skip_bytes,count_bytes skip="$3" count="$4" status=none
    room=$((room - $4))
  }
  size=$(stat -c %s "$model")
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
  of=$(stat -c %s "$bundle") at=0 piece=0
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
