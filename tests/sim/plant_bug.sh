#!/bin/sh
# plant_bug.sh BUG IN OUT: a copy of the flow driver with a bug that a reviewer might miss.
set -eu

case $1 in
# A step that succeeded although its flow was cancelled is not undone.
kept) edit='s/if (r == FLOW_NEXT)$/if (r == FLOW_NEXT \&\& !f->error)/' ;;
# Unwinding skips a step.
skipped) edit='s/f->at--;/f->at -= f->at > 1 ? 2 : 1;/' ;;
# A limit outlives its step.
late) edit='s/timer_clear(f->host->timers, &f->limit);/(void)0;/' ;;
# A cancel from inside start is forgotten when the step waits.
unasked) edit='s/if (f->direction > 0 && f->error)/if (false)/' ;;
# A failure hides the cancel that came before it.
untrue) edit='s/return; \/\* the first reason stands.*/(void)0;/' ;;
*) exit 2 ;;
esac
sed "$edit" "$2" >"$3"
# The driver has changed: so must this script.
! cmp -s "$2" "$3"
