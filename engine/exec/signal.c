/*
 * Signals to execs and the size of their terminals. Called by request.c. Must hold: a signal meets
 * the exec that was named or nobody; one that has ended is never mistaken for another.
 */
#include <errno.h>
#include <signal.h>

#include "engine/exec/exec_state.h"
#include "engine/request/request.h"
#include "engine/sandbox/sandbox.h"

static struct status signal_invalid(const char *step, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = EINVAL,
				.table = "signal",
				.step = step,
				.detail = detail };
}

static struct status signal_conflict(const char *step, const char *detail)
{
	return (struct status){ .code = DSEC_CONFLICT,
				.blame = DSEC_BLAME_CALLER,
				.table = "exec",
				.step = step,
				.detail = detail };
}

static struct status signal_ended(void)
{
	return signal_conflict("ended", "it has ended");
}

/* The exec of that number, if it has not ended; else the status that says so. */
static struct status exec_running(struct sandbox *sandbox, uint64_t number, struct exec **ret)
{
	struct exec *exec;

	exec = exec_find(sandbox, number);
	if (!exec)
		return exec_absent(sandbox, number);
	if (exec->run_over)
		return signal_ended();
	if (!exec->started) {
		struct status s = status_of_errno(-EAGAIN, "exec", "start");

		s.retry_after_ms = 20;
		return s;
	}
	*ret = exec;
	return STATUS_OK;
}

/* The running exec that a request names, or why there is none. */
static struct status exec_named(const struct part *part, struct exec **ret)
{
	const struct dsec_ring_request *entry = &part->request->entry;
	struct sandbox *sandbox = sandbox_of(part);

	if (entry->number[2] || entry->number[3])
		return signal_invalid("number", NULL);
	if (!sandbox || sandbox->state != DSEC_STATE_RUNNING)
		return status_absent();
	return exec_running(sandbox, entry->exec, ret);
}

static struct status status_of_ask(int error)
{
	if (error == -ESRCH)
		return signal_ended();
	if (error == -EAGAIN) {
		struct status s = status_of_errno(error, "signal", "all");

		s.detail = "new processes kept coming, and not all of them got it";
		return s;
	}
	return status_of_errno(error, "signal", "ask");
}

static void ask_done(void *owner, int error)
{
	struct status s = status_of_ask(error);

	part_end(owner, &s, NULL);
}

static void ask(struct part *part, struct exec *exec, struct run_ask ask)
{
	struct status s;
	int r;

	ask.owner = part;
	ask.done = ask_done;
	r = exec->sandbox->box->backend->class->run_ask(exec->run, &ask);
	if (r == 0)
		return;
	s = status_of_ask(r);
	part_end(part, &s, NULL);
}

/* What is done at once; false: it is asked of the backend, which ends the part. */
static bool signal_now(struct exec *exec, int signal, uint64_t flags, struct status *ret)
{
	const struct backend_class *class = exec->sandbox->box->backend->class;
	int r = 0;

	if (!(flags & DSEC_SIGNAL_ALL)) {
		r = class->run_signal(exec->run, signal);
	} else if (signal == SIGKILL) {
		exec_kill(exec, DSEC_KILLED);
	} else {
		return false;
	}
	*ret = status_of_ask(r);
	return true;
}

/* Of a worker's, since the sandbox can make this wait. No rows: a hang-up. */
static void tty_ask(struct part *part, struct exec *exec, uint16_t rows, uint16_t columns)
{
	struct status s = signal_conflict("tty", "it has no terminal");

	if (exec->has_tty && exec->streams[0].fd >= 0)
		ask(part, exec,
		    (struct run_ask){
			    .tty_fd = exec->streams[0].fd, .rows = rows, .columns = columns });
	else
		part_end(part, &s, NULL);
}

static struct status signal_check(const struct dsec_ring_request *entry)
{
	uint64_t signal = entry->number[0], flags = entry->number[1];

	if (signal < 1 || signal > DSEC_SIGNAL_MAX)
		return signal_invalid("signal", "there is no such signal");
	if (flags & ~(uint64_t)DSEC_SIGNAL_FLAGS_KNOWN || flags == DSEC_SIGNAL_FLAGS_KNOWN)
		return signal_invalid("flags", NULL);
	if (flags & DSEC_SIGNAL_TERMINAL && signal != SIGHUP)
		return signal_invalid("signal", "a terminal that is hung up sends SIGHUP");
	return STATUS_OK;
}

void signal_part(struct part *part)
{
	const struct dsec_ring_request *entry = &part->request->entry;
	struct exec *exec = NULL;
	struct status s = signal_check(entry);

	if (!s.code)
		s = exec_named(part, &exec);
	if (!s.code && entry->number[1] & DSEC_SIGNAL_TERMINAL) {
		tty_ask(part, exec, 0, 0);
		return;
	}
	if (!s.code && !signal_now(exec, (int)entry->number[0], entry->number[1], &s)) {
		ask(part, exec, (struct run_ask){ .signal = (int)entry->number[0] });
		return;
	}
	part_end(part, &s, NULL);
}

void resize_part(struct part *part)
{
	const struct dsec_ring_request *entry = &part->request->entry;
	struct exec *exec;
	struct status s = exec_named(part, &exec);

	if (!s.code && (entry->number[0] - 1 >= UINT16_MAX || entry->number[1] - 1 >= UINT16_MAX))
		s = signal_invalid("size", "rows and columns are from 1 to 65535");
	if (s.code)
		part_end(part, &s, NULL);
	else
		tty_ask(part, exec, (uint16_t)entry->number[0], (uint16_t)entry->number[1]);
}
