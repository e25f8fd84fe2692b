/*
 * The backend of fuzz runs. Called by the engine through the class and by the run's node for what
 * is to happen. It keeps the order that the container backend promises: nothing of a box happens
 * after it is gone, and it is not gone while its usage is read.
 */
#include "tests/fuzz/backend_stub.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/backend.h"
#include "engine/base/cleanup.h"
#include "backends/guest/protocol.h"
#include "tests/fuzz/backend_state.h"

static struct stub_run *run_of(struct run *run)
{
	return container_of(run, struct stub_run, run);
}

/* ---- boxes ---- */

static int box_wait(struct flow *f)
{
	container_of(f, struct stub_box, box.flow)->waiting = true;
	return FLOW_WAIT;
}

static const struct flow_step box_steps[] = {
	{ "spawn", box_wait, NULL, box_wait, 0 },
};

static void box_done(struct flow *f, int error)
{
	struct stub_box *box = container_of(f, struct stub_box, box.flow);

	box->up = !error && f->at;
	if (error) {
		box->box.failed_step = f->failed_step ? f->failed_step : "cancel";
		box->box.built(&box->box, error);
	} else if (f->at) {
		box->box.built(&box->box, 0);
	} else {
		box->box.gone(&box->box);
	}
}

static void box_cancel(struct flow *f)
{
	(void)f; /* the step ends by itself */
}

static struct box *stub_box_new(struct backend *backend)
{
	struct stub *stub = stub_of(backend);

	for (uint32_t i = 0; i < stub->boxes_max; i++) {
		struct stub_box *box = &stub->boxes[i];

		if (box->taken)
			continue;
		*box = (struct stub_box){ .taken = true };
		box->box.backend = backend;
		return &box->box;
	}
	return NULL;
}

static void stub_box_free(struct box *box)
{
	assert(box_of(box)->taken);
	assert(!box_of(box)->waiting);
	assert(!box_of(box)->usage);
	assert(!box_of(box)->port);
	assert(!box_of(box)->clear);
	assert(!box_of(box)->narrow);
	assert(!box_of(box)->freeze);
	assert(!box_of(box)->frozen);
	box_of(box)->taken = false;
}

static void stub_box_build(struct box *box)
{
	assert(box->spec.hostname);
	flow_init(&box->flow, stub_of(box->backend)->host, "stub", box_steps, 1);
	box->flow.done = box_done;
	box->flow.cancel = box_cancel;
	flow_build(&box->flow);
}

static void stub_box_retry(struct box *box)
{
	assert(box_of(box)->taken);
}

static void stub_box_unwind(struct box *box)
{
	struct stub *stub = stub_of(box->backend);

	for (uint32_t i = 0; i < stub->runs_max; i++)
		if (stub->runs[i].taken && stub->runs[i].run.box == box)
			stub->runs[i].killed = true;
	flow_unwind(&box->flow);
}

static int stub_box_usage(struct box *base, struct box_usage *usage)
{
	struct stub_box *box = box_of(base);

	if (box->usage || !box->up || choose(stub_of(base->backend)->choices, 8) == 7)
		return -EBUSY;
	box->usage = usage;
	return 0;
}

static int stub_port_ask(struct box_port *port)
{
	struct stub_box *box = box_of(port->box);

	if (box->port || !box->up || choose(stub_of(port->box->backend)->choices, 8) == 7)
		return -EAGAIN;
	box->port = port;
	return 0;
}

/* ---- runs ---- */

static struct run *stub_run_new(struct box *box)
{
	struct stub *stub = stub_of(box->backend);

	for (uint32_t i = 0; i < stub->runs_max; i++) {
		struct stub_run *run = &stub->runs[i];

		if (run->taken)
			continue;
		*run = (struct stub_run){
			.taken = true, .stdout_fd = -1, .control_fd = -1, .tty_fd = -1
		};
		run->run.box = box;
		return &run->run;
	}
	return NULL;
}

static void stub_run_free(struct run *run)
{
	assert(run_of(run)->taken);
	assert(!run_of(run)->end);
	assert(run_of(run)->state == RUN_NEW || run_of(run)->state == RUN_ENDED);
	run_of(run)->taken = false;
}

/* The strings are what execve(2) takes: so many that end, and no byte more. */
static void strings_check(const struct run_spec *spec)
{
	uint32_t ends = 0;

	assert(spec->argument_count);
	for (uint32_t i = 0; i < spec->string_bytes; i++)
		ends += spec->strings[i] == 0;
	assert(ends == spec->argument_count + spec->environment_count + 1);
	assert(spec->strings[spec->string_bytes - 1] == 0);
}

/* Something that is read and written at both ends. */
static int terminal_make(struct stub_run *run)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		abort();
	run->tty_fd = ends[0];
	return ends[1];
}

static int stub_run_start(struct run *base, const struct run_spec *spec)
{
	struct stub_run *run = run_of(base);
	struct stub *stub = stub_of(base->box->backend);

	if (!spec->is_helper)
		strings_check(spec);
	assert(spec->has_tty || spec->stdout_fd >= 0);
	assert(spec->has_tty || spec->stderr_fd >= 0);
	assert(spec->limit_count <= RUN_LIMITS_MAX);
	if (!box_of(base->box)->up)
		return -ESRCH;
	if (choose(stub->choices, 8) == 7)
		return -EAGAIN;
	run->state = RUN_STARTING;
	run->stdout_fd = spec->has_tty ? terminal_make(run) : dup(spec->stdout_fd);
	run->control_fd = spec->is_helper ? dup(spec->stderr_fd) : -1;
	return 0;
}

static void stub_run_terminate(struct run *run)
{
	assert(run_of(run)->state == RUN_RUNNING);
}

static void stub_run_kill(struct run *run)
{
	assert(run_of(run)->state == RUN_RUNNING);
	run_of(run)->killed = true;
}

static int stub_run_signal(struct run *run, int signal)
{
	assert(signal > 0);
	assert(signal <= 64);
	return run_of(run)->state == RUN_RUNNING ? 0 : -ESRCH;
}

static int stub_run_ask(struct run *run, const struct run_ask *ask)
{
	struct stub *stub = stub_of(run->box->backend);

	assert(run_of(run)->state == RUN_RUNNING);
	if (stub->ask.done || choose(stub->choices, 8) == 7)
		return -ESRCH;
	stub->ask = *ask;
	return 0;
}

static int stub_run_finish(struct run *base, struct run_end *end)
{
	struct stub_run *run = run_of(base);

	assert(run->state == RUN_ENDED);
	assert(!run->end);
	if (!box_of(base->box)->up)
		return -ESRCH;
	run->end = end;
	return 0;
}

/* ---- what happens ---- */

static void run_close(struct stub_run *run)
{
	(void)close(run->stdout_fd);
	if (run->control_fd >= 0)
		(void)close(run->control_fd);
	cleanup_close(&run->tty_fd);
	run->tty_fd = -1;
	run->stdout_fd = run->control_fd = -1;
}

/* A file helper is a process of its sandbox: it says what it likes. */
static void helper_says(struct stub *stub, struct stub_run *run)
{
	struct {
		struct guest_row row;
		char names[16];
	} row = { { .packet = GUEST_ROW, .size = sizeof row.row, .name_bytes = 4 }, "name" };
	struct guest_done done = { .packet = GUEST_DONE, .size = sizeof done };
	struct choices *c = stub->choices;

	for (uint32_t rows = choose(c, 3); rows; rows--)
		(void)send(run->control_fd, &row, sizeof row.row + 4, MSG_DONTWAIT | MSG_NOSIGNAL);
	done.error = choose(c, 3);
	done.step = choose(c, GUEST_STEP_COUNT);
	for (uint32_t count = choose(c, 4) == 3 ? choose(c, 8) : 0; count; count--)
		((char *)&done)[choose(c, sizeof done)] = (char)choose_byte(c);
	if (choose(c, 4) != 3)
		(void)send(run->control_fd, &done, sizeof done - (choose(c, 8) == 7),
			   MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void run_starts(struct stub *stub, struct stub_run *run)
{
	/* Of a box that goes: it is too late, or it started and is killed. */
	int error = (run->killed && choose(stub->choices, 2)) || choose(stub->choices, 4) == 3 ?
			    -EPIPE :
			    0;

	run->run.program_failed = error && !run->killed && choose(stub->choices, 2);
	run->run.failed_step = error ? "exec" : NULL;
	run->state = error ? RUN_ENDED : RUN_RUNNING;
	if (error)
		run_close(run);
	if (!error)
		run->run.tty_fd = take_fd(&run->tty_fd);
	run->run.started(&run->run, error);
}

static void run_ends(struct stub *stub, struct stub_run *run)
{
	static const char output[OUTPUT_BYTES_MAX] = "output";
	uint32_t bytes = 256 * choose(stub->choices, 3);

	(void)!write(run->stdout_fd, output, bytes);
	if (run->control_fd >= 0)
		helper_says(stub, run);
	run_close(run);
	run->state = RUN_ENDED;
	run->run.ended(&run->run, run->killed ? SIGKILL : choose(stub->choices, 2) << 8);
}

static void run_is_finished(struct stub *stub, struct stub_run *run)
{
	struct run_end *end = run->end;

	run->end = NULL;
	end->clean = end->prove && choose(stub->choices, 2);
	end->oom = choose(stub->choices, 8) == 7;
	end->cpu_us = choose(stub->choices, 4) * 1000;
	end->done(end);
}

static void usage_is_read(struct stub *stub, struct stub_box *box)
{
	struct box_usage *usage = box->usage;

	box->usage = NULL;
	usage->processes = 1;
	usage->io_read_bytes = UINT64_MAX;
	usage->cpu_us = 150000; /* more than some functions may */
	usage->done(usage, choose(stub->choices, 4) == 3 ? -EIO : 0);
}

static void port_is_told(struct stub *stub, struct stub_box *box)
{
	static const int errors[] = { 0, -ECONNREFUSED, -EPIPE, -EIO };
	struct box_port *port = box->port;

	box->port = NULL;
	port->is_ipv6 = choose(stub->choices, 2);
	port->done(port, errors[choose(stub->choices, 4)]);
}

static bool box_is_held(const struct stub *stub, const struct stub_box *box)
{
	for (uint32_t i = 0; i < stub->runs_max; i++)
		if (stub->runs[i].taken && stub->runs[i].run.box == &box->box &&
		    stub->runs[i].state == RUN_STARTING)
			return true;
	return false;
}

static bool box_step(struct stub *stub, struct stub_box *box)
{
	int error = 0;

	if (!box->taken)
		return false;
	if (box->usage) {
		usage_is_read(stub, box);
		return true;
	}
	if (box->clear || box->narrow || box->freeze) {
		stub_passage_ends(stub, box);
		return true;
	}
	if (box->port) {
		port_is_told(stub, box);
		return true;
	}
	/* Its PID 1 is held while a program starts. */
	if (!box->waiting ||
	    (box->box.flow.direction < 0 && (box->frozen || box_is_held(stub, box))))
		return false;
	box->waiting = false;
	if (box->box.flow.direction > 0 && choose(stub->choices, 8) == 7)
		error = choose(stub->choices, 2) ? -EAGAIN : -EIO;
	flow_resume(&box->box.flow, error);
	return true;
}

static bool run_step(struct stub *stub, struct stub_run *run)
{
	if (run->taken && run->end) {
		run_is_finished(stub, run);
		return true;
	}
	if (!run->taken || (run->state != RUN_STARTING && run->state != RUN_RUNNING))
		return false;
	if (run->state == RUN_STARTING)
		run_starts(stub, run);
	else
		run_ends(stub, run);
	return true;
}

static bool ask_step(struct stub *stub)
{
	struct run_ask ask = stub->ask;

	if (!ask.done)
		return false;
	stub->ask.done = NULL;
	ask.done(ask.owner, choose(stub->choices, 4) == 3 ? -EAGAIN : 0);
	return true;
}

static bool image_step(struct stub *stub)
{
	struct image_wait *at = stub->image.ready ? &stub->image : &stub->detaching;
	struct image_wait image = *at;

	if (!image.ready)
		return false;
	at->ready = NULL;
	image.ready(image.owner, choose(stub->choices, 8) == 7 ? -EIO : 0);
	return true;
}

bool stub_step(struct backend *backend)
{
	struct stub *stub = stub_of(backend);
	uint32_t first = choose_byte(stub->choices);

	if (image_step(stub) || ask_step(stub))
		return true;
	for (uint32_t i = 0; i < BOXES_MAX + RUNS_MAX; i++) {
		uint32_t at = (first + i) % (BOXES_MAX + RUNS_MAX);

		if (at < BOXES_MAX ? box_step(stub, &stub->boxes[at]) :
				     run_step(stub, &stub->runs[at - BOXES_MAX]))
			return true;
	}
	if (!stub->empty)
		return false;
	stub->empty(stub->owner);
	stub->empty = NULL;
	return true;
}

void stub_box_dies(struct backend *backend)
{
	struct stub *stub = stub_of(backend);
	uint32_t first = choose_byte(stub->choices);

	for (uint32_t i = 0; i < BOXES_MAX; i++) {
		struct stub_box *box = &stub->boxes[(first + i) % BOXES_MAX];

		if (!box->taken || !box->up || box->box.flow.direction)
			continue;
		box->up = false;
		box->box.died(&box->box, SIGKILL);
		return;
	}
}

/* ---- the class ---- */

static void stub_launcher_add(struct backend *backend, int channel_fd, int pid)
{
	(void)backend;
	(void)pid;
	(void)close(channel_fd);
}

static int stub_image_attach(struct backend *backend, uint32_t image, int mount_fd, void *owner,
			     void (*ready)(void *owner, int error))
{
	struct stub *stub = stub_of(backend);

	(void)image;
	assert(!stub->image.ready); /* one at a time */
	if (choose(stub->choices, 16) == 15)
		return -EBUSY;
	(void)close(mount_fd);
	stub->image = (struct image_wait){ owner, ready };
	return 0;
}

static int stub_image_detach(struct backend *backend, uint32_t image, void *owner,
			     void (*ready)(void *owner, int error))
{
	struct stub *stub = stub_of(backend);

	for (uint32_t i = 0; i < BOXES_MAX; i++)
		assert(!stub->boxes[i].taken || stub->boxes[i].box.spec.image != image);
	if (stub->detaching.ready || choose(stub->choices, 16) == 15)
		return -EBUSY;
	stub->detaching = (struct image_wait){ owner, ready };
	return 0;
}

static void stub_image_forget(struct backend *backend, uint32_t image)
{
	struct stub *stub = stub_of(backend);

	for (uint32_t i = 0; i < BOXES_MAX; i++)
		assert(!stub->boxes[i].taken || stub->boxes[i].box.spec.image != image);
}

static void stub_gauges(const struct backend *backend, struct backend_gauges *ret)
{
	(void)backend;
	*ret = (struct backend_gauges){ 0 };
}

static void stub_drain(struct backend *backend, void (*empty)(void *owner))
{
	struct stub *stub = stub_of(backend);

	for (uint32_t i = 0; i < BOXES_MAX; i++)
		assert(!stub->boxes[i].taken);
	stub->empty = empty;
}

static void stub_close(struct backend *backend)
{
	struct stub *stub = stub_of(backend);

	for (uint32_t i = 0; i < RUNS_MAX; i++)
		assert(!stub->runs[i].taken);
	free(stub);
}

static const struct backend_class stub_class = {
	.name = "stub",
	.box_new = stub_box_new,
	.box_free = stub_box_free,
	.box_build = stub_box_build,
	.box_unwind = stub_box_unwind,
	.box_retry = stub_box_retry,
	.run_new = stub_run_new,
	.run_free = stub_run_free,
	.run_start = stub_run_start,
	.run_terminate = stub_run_terminate,
	.run_kill = stub_run_kill,
	.run_signal = stub_run_signal,
	.run_ask = stub_run_ask,
	.run_finish = stub_run_finish,
	.box_usage = stub_box_usage,
	.box_clear = stub_box_clear,
	.box_narrow = stub_box_narrow,
	.box_freeze = stub_box_freeze,
	.box_thaw = stub_box_thaw,
	.box_phase = stub_box_phase,
	.box_network = stub_box_network,
	.port_ask = stub_port_ask,
	.launcher_add = stub_launcher_add,
	.image_attach = stub_image_attach,
	.image_detach = stub_image_detach,
	.image_forget = stub_image_forget,
	.gauges = stub_gauges,
	.drain = stub_drain,
	.close = stub_close,
};

struct backend *stub_open(const struct stub_options *options)
{
	struct stub *stub = calloc(1, sizeof *stub);

	assert(stub);
	assert(options->boxes_max <= BOXES_MAX);
	assert(options->runs_max <= RUNS_MAX);
	stub->backend.class = &stub_class;
	stub->host = options->host;
	stub->choices = options->choices;
	stub->boxes_max = options->boxes_max;
	stub->runs_max = options->runs_max;
	stub->owner = options->owner;
	return &stub->backend;
}
