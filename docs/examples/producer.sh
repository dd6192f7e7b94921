#!/usr/bin/env bash
# Starts, follows, signals and cancels workflows with redis-cli only. docs/producers.md explains how a producer
# in any language does the same.
#
#   producer.sh start  [-i ID] [-t SECONDS] NAME|FILE [INPUTS]  start a workflow, wait, print its outcome
#   producer.sh wait   [-t SECONDS] ID                          wait for the end of an execution
#   producer.sh signal ID NAME [PAYLOAD]                        send a signal
#   producer.sh cancel [-t SECONDS] ID [REASON]                 cancel an execution, print the reply
#
# NAME is a registered workflow, FILE contains a document. INPUTS and PAYLOAD are JSON; - reads them from standard
# input. Set ORCHESTRATOR_REDIS_URL and ORCHESTRATOR_PREFIX if they differ from the defaults.
#
# Exit codes: 0 complete, or done; 1 no Redis, 2 rejected or wrong usage, 3 halted, 4 failed, 5 cancelled,
# 124 timeout.
set -euo pipefail
trap '' PIPE # so that redis-cli reports a closed connection as an error, with exit code 1

prefix=${ORCHESTRATOR_PREFIX:-orchestrator}
url=${ORCHESTRATOR_REDIS_URL:-redis://localhost:6379/0}
case $url in
  unix://*) redis=(redis-cli -s "${url#unix://}" --raw) ;;
  *) redis=(redis-cli --no-auth-warning -u "$url" --raw) ;;
esac

die() { # CODE MESSAGE
  printf '%s\n' "$2" >&2
  exit "$1"
}

usage() {
  sed -n '2,/^set /{/^# \{0,1\}/!d;s///;p}' "$0" >&2
  exit 2
}

# Sets `left`, the seconds until the timeout. It must not be 0: BLMOVE would block forever, and read would not wait.
check_timeout() { # MESSAGE
  left=$((deadline - SECONDS))
  ((left > 0)) || die 124 "$1"
}

# Write an entry into a stream. The last value is passed by standard input, because arguments have a maximum length.
send() { # STREAM FIELD VALUE [FIELD VALUE]...
  entry=$(printf '%s' "${!#}" | "${redis[@]}" -x XADD "$1" '*' "${@:2:$#-2}")
  [[ $entry =~ ^[0-9]+-[0-9]+$ ]] || die 1 "Redis rejected the entry: $entry"
}

json() { # TEXT|-
  if [[ $1 == - ]]; then cat; else printf '%s' "$1"; fi
}

# The reply to a start is named by the id of its entry, the reply to a control by its field `reply`. BLMOVE of a list
# onto itself waits for the reply and leaves it in place.
wait_for_reply() { # NAME
  local key=$prefix:answer:$1
  check_timeout "no time left to wait for a reply; $1 stays in its stream"
  reply=$("${redis[@]}" BLMOVE "$key" "$key" LEFT LEFT "$left")
  [[ -n $reply ]] || die 124 "no coordinator has replied; $1 stays in its stream"
  # Quotes inside a JSON text are escaped, so the reason of a rejection cannot match this.
  [[ $reply =~ [\{,]\"ok\":true ]] || die 2 "rejected: $reply"
}

# Subscribe first, read the status second: an end between the two is seen by one of them. Each message of the channel
# has three lines: the first message confirms the subscription, the second has the final status.
wait_for_end() { # WORKFLOW_EXECUTION_ID
  local key=$prefix:workflow:$1 channel listener
  exec {channel}< <(exec "${redis[@]}" SUBSCRIBE "$prefix:done:$1")
  listener=$!
  # shellcheck disable=SC2064 # expand it now: the variable is local
  trap "kill $listener 2>/dev/null || true" EXIT
  status=
  while [[ ! $status =~ ^(complete|halted|failed|cancelled)$ ]]; do
    for _ in 1 2 3; do
      check_timeout "$1 has not ended in time; it continues"
      read -r -t "$left" -u "$channel" _ || (($? > 128)) || die 1 "Redis is unavailable; $1 continues"
    done
    status=$("${redis[@]}" HGET "$key" status)
    [[ -n $status ]] || die 2 "there is no execution $1"
  done
  local fields
  fields=$("${redis[@]}" HMGET "$key" outcome error)
  mapfile -t fields <<<"$fields" # the JSON in a record has no line breaks
  outcome=${fields[0]-} error=${fields[1]-}
}

report() {
  printf '%s: %s\n' "$execution" "$status" >&2
  case $status in
    complete) printf '%s\n' "$outcome" ;;
    halted)
      printf '%s\n' "$outcome"
      exit 3
      ;;
    failed) die 4 "$error" ;;
    cancelled) exit 5 ;;
  esac
}

start() { # NAME|FILE [INPUTS]
  local fields=(workflow "$1") inputs
  if [[ -f $1 ]]; then fields=(spec "$(<"$1")"); fi
  if [[ -n $id ]]; then fields+=(execution_id "$id"); fi
  inputs=$(json "${2-"{}"}")
  send "$prefix:starts" "${fields[@]}" inputs "$inputs"
  wait_for_reply "$entry"
  [[ $reply =~ [\{,]\"workflow_execution_id\":\"([^\"]+)\" ]] || die 1 "unexpected reply: $reply"
  execution=${BASH_REMATCH[1]}
  wait_for_end "$execution"
  report
}

wait_for() { # ID
  execution=$1
  if [[ $1 != *'#'* ]]; then execution=$("${redis[@]}" GET "$prefix:execution:$1"); fi
  [[ -n $execution ]] || die 2 "there is no execution $1"
  wait_for_end "$execution"
  report
}

signal() { # ID NAME [PAYLOAD]
  local payload
  payload=$(json "${3-null}")
  send "$prefix:events:0" type signal execution "$1" name "$2" payload "$payload"
}

cancel() { # ID [REASON]
  local name fields=(type control action cancel execution "$1" by "${USER:-producer}")
  printf -v name 'producer-%(%s)T-%s-%s' -1 "$$" "$RANDOM" # a name that was never used before
  send "$prefix:events:0" "${fields[@]}" reply "$name" reason "${2-}"
  wait_for_reply "$name"
  printf '%s\n' "$reply"
}

command=${1-}
(($# == 0)) || shift
id= timeout=60
while getopts :i:t: option; do
  case $option in
    i) id=$OPTARG ;;
    t) timeout=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
[[ $timeout =~ ^[1-9][0-9]{0,8}$ ]] || die 2 "-t: whole seconds, not '$timeout'"
deadline=$((SECONDS + timeout))

case $command:$# in
  start:[12]) start "$@" ;;
  wait:1) wait_for "$@" ;;
  signal:[23]) signal "$@" ;;
  cancel:[12]) cancel "$@" ;;
  *) usage ;;
esac
