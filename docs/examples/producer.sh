#!/usr/bin/env bash
# Starts, follows, signals and cancels workflows with nothing but redis-cli: all that a producer needs to do, in
# any language. docs/producers.md explains it.
#
#   producer.sh start  [-i ID] [-t SECONDS] NAME|FILE [INPUTS]  start it, wait for its end, print its outcome
#   producer.sh wait   [-t SECONDS] ID                          wait for the end of one that runs
#   producer.sh signal ID NAME [PAYLOAD]                        say something to it
#   producer.sh cancel [-t SECONDS] ID [REASON]                 cancel it, print the answer
#
# NAME is a registered workflow, FILE holds a document. INPUTS and PAYLOAD are JSON; - reads them from the standard
# input. ORCHESTRATOR_REDIS_URL and ORCHESTRATOR_PREFIX say where.
#
# Exit codes: 0 complete, or done as asked; 1 no Redis, 2 refused or wrong usage, 3 halted, 4 failed, 5 cancelled,
# 124 not in time.
set -euo pipefail

prefix=${ORCHESTRATOR_PREFIX:-orchestrator}
url=${ORCHESTRATOR_REDIS_URL:-redis://localhost:6379/0}
case $url in
  unix://*) redis=(redis-cli -s "${url#unix://}" --raw) ;;
  *) redis=(redis-cli --no-auth-warning -u "$url" --raw) ;;
esac

die() { # CODE WORDS
  printf '%s\n' "$2" >&2
  exit "$1"
}

usage() {
  sed -n '2,/^set /{/^# \{0,1\}/!d;s///;p}' "$0" >&2
  exit 2
}

# How many seconds are left. Neither BLMOVE nor read may be given 0: it means for ever to one, and a look to the other.
look_at_the_clock() { # WORDS
  left=$((deadline - SECONDS))
  ((left > 0)) || die 124 "$1"
}

# Write an entry into a stream. The last value goes by the standard input, because an argument has an end.
send() { # STREAM FIELD VALUE [FIELD VALUE]...
  entry=$(printf '%s' "${!#}" | "${redis[@]}" -x XADD "$1" '*' "${@:2:$#-2}")
  [[ $entry =~ ^[0-9]+-[0-9]+$ ]] || die 1 "Redis did not take it: $entry"
}

json() { # TEXT|-
  if [[ $1 == - ]]; then cat; else printf '%s' "$1"; fi
}

# A start is answered under the id of its entry, a control under the name that it gives as its `reply`. BLMOVE of a list
# onto itself waits for the answer, and leaves it to others.
answer_to() { # NAME
  local key=$prefix:answer:$1
  look_at_the_clock "no time to wait for an answer; $1 stays in its stream"
  answer=$("${redis[@]}" BLMOVE "$key" "$key" LEFT LEFT "$left")
  [[ -n $answer ]] || die 124 "no coordinator has answered; $1 stays in its stream"
  # A quote inside of a text is escaped, so this cannot be found in the words of a refusal.
  [[ $answer =~ [\{,]\"ok\":true ]] || die 2 "refused: $answer"
}

# Subscribe first, look second: an end between the two is seen by one of them. Whatever the channel says, it says in
# three lines: at first that we are subscribed, then how the execution has ended.
wait_for_end() { # WORKFLOW_EXECUTION_ID
  local key=$prefix:workflow:$1 channel listener
  exec {channel}< <(exec "${redis[@]}" SUBSCRIBE "$prefix:done:$1")
  listener=$!
  # shellcheck disable=SC2064 # it is known now, and gone then
  trap "kill $listener 2>/dev/null || true" EXIT
  status=
  while [[ ! $status =~ ^(complete|halted|failed|cancelled)$ ]]; do
    for _ in 1 2 3; do
      look_at_the_clock "$1 has not ended in time, and goes on"
      read -r -t "$left" -u "$channel" _ || (($? > 128)) || die 1 "Redis went away; $1 goes on"
    done
    status=$("${redis[@]}" HGET "$key" status)
    [[ -n $status ]] || die 2 "there is no execution $1"
  done
  local fields
  fields=$("${redis[@]}" HMGET "$key" outcome error)
  mapfile -t fields <<<"$fields" # JSON as we write it has no line breaks
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
  answer_to "$entry"
  [[ $answer =~ [\{,]\"workflow_execution_id\":\"([^\"]+)\" ]] || die 1 "not understood: $answer"
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
  local reply fields=(type control action cancel execution "$1" by "${USER:-producer}")
  printf -v reply 'producer-%(%s)T-%s-%s' -1 "$$" "$RANDOM" # a name of our own, never used before
  send "$prefix:events:0" "${fields[@]}" reply "$reply" reason "${2-}"
  answer_to "$reply"
  printf '%s\n' "$answer"
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
