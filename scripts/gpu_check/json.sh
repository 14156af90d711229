# JSON in plain bash for gpu_check.sh, because a machine with a GPU may have no Python.

json_string() {  # text -> "text"
  if [[ $1 != *[\\\"[:cntrl:]]* ]]; then  # nothing to escape: printf is enough, and no process is started
    printf '"%s"' "$1"
    return
  fi
  printf '"'
  printf '%s' "$1" | LC_ALL=C tr -d '\000-\010\013-\037' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' | sed -e ':a' -e '$!{N;ba}' -e 's/\n/\\n/g' | tr -d '\n'
  printf '"'
}

# is_json FILE: true if the text is an object or a list whose strings end and whose brackets match. A stopped program leaves an incomplete text.
is_json() {
  [ -s "$1" ] || return 1
  local left
  left=$(tr -d '\r\n' < "$1" | LC_ALL=C sed -e 's/\\.//g' -e 's/"[^"]*"//g' -e 's/[^]["{}]//g' -e ':a' -e 's/\[\]/()/g' -e 's/{}/()/g' -e 's/()//g' -e 'ta')
  [ -z "$left" ] || return 1
  local first last
  first=$(tr -d '[:space:]' < "$1" | head -c 1)
  last=$(tail -c 64 "$1" | tr -d '[:space:]' | tail -c 1)
  [[ $first$last == '{}' || $first$last == '[]' ]]
}
