/*
 * A sandbox's settings: every limit that was asked for is enforced or refused by its name, and what
 * is in force is told. Native hosts lack controllers, guests have them: the claims hold on both.
 */
#include <linux/sched/types.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { MIB = 1 << 20 };

/* One sandbox and what the engine said of it. */
struct asked {
	struct dsec_id id;
	struct dsec_status status;
	struct dsec_created settings;
};

static struct asked ask(struct dsec *d, const struct dsec_create_opts *opts)
{
	struct asked asked = { 0 };
	int64_t ticket = create_start(d, opts, NULL);
	struct dsec_event *event;
	bool is_last = ticket < 0;

	while (!is_last && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		is_last = event->flags & DSEC_LAST;
		if (event->status.code)
			asked.status = event->status;
		if (event->kind == DSEC_EV_CREATED)
			asked.id = event->subject;
		if (event->kind == DSEC_EV_CREATED && event->body)
			asked.settings = *(const struct dsec_created *)event->body;
		dsec_event_free(event);
	}
	return asked;
}

static uint64_t unenforced_here(struct engine *e)
{
	const struct dsec_caps *caps;

	return expect(dsec_capabilities(e->d, &caps) == 0) ? caps->unenforced : 0;
}

struct wish {
	const char *name;
	size_t at; /* in dsec_create_opts */
	size_t bytes;
	uint64_t fine, wrong;
	uint32_t limit;
};

#define WISH(name, field, ...)                                                                     \
	{                                                                                          \
		name, offsetof(struct dsec_create_opts, field),                                    \
			sizeof(((struct dsec_create_opts *)0)->field), __VA_ARGS__                 \
	}

static const struct wish wishes[] = {
	WISH("memory", memory_bytes, 64 * MIB, 1000, DSEC_LIMIT_MEMORY),
	WISH("swap", swap_bytes, 32 * MIB, 1ull << 60, DSEC_LIMIT_SWAP),
	WISH("pids", pids_max, 40, 1, DSEC_LIMIT_PIDS),
	WISH("cpu_weight", cpu_weight, 50, 10001, DSEC_LIMIT_CPU),
	WISH("cpu", cpu_max_permille, 500, 9, DSEC_LIMIT_CPU),
	WISH("io", io_bytes_per_s, 64 * MIB, 100, DSEC_LIMIT_IO),
	WISH("io_weight", io_weight, 50, 10001, DSEC_LIMIT_IO_WEIGHT),
	WISH("processes_per_s", processes_per_s, 900, 1000001, DSEC_LIMIT_PROCESSES),
	WISH("disk", disk_bytes, 16 * MIB, 100, 0),
	WISH("inodes", inodes, 500, 3, 0),
	WISH("output_limit", output_limit_bytes, 5000, 1ull << 50, 0),
	WISH("on_timeout", on_timeout, DSEC_ON_TIMEOUT_DESTROY, 3, 0),
	WISH("on_disconnect", on_disconnect, DSEC_DISCONNECT_KEEP, 3, 0),
};

static struct dsec_create_opts wish_opts(const struct wish *wish, uint64_t value)
{
	struct dsec_create_opts opts = create_opts(1);

	opts.flags = 0;					       /* nothing may be left out */
	memcpy((char *)&opts + wish->at, &value, wish->bytes); /* little endian */
	return opts;
}

static bool names(const struct dsec_status *status, uint32_t code, const char *name)
{
	char step[32];

	(void)snprintf(step, sizeof step, "create.%s", name);
	if (status->code == code && status->blame == DSEC_BLAME_CALLER &&
	    !strcmp(status->step, step) && *status->detail)
		return true;
	note("%s: code %u at \"%s\": %s", name, status->code, status->step, status->detail);
	return false;
}

/* 48: an unknown option fails closed, and capabilities tell the truth. */
static void a_limit_is_enforced_or_refused_by_name(struct engine *e)
{
	uint64_t unenforced = unenforced_here(e);

	for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
		const struct wish *wish = &wishes[i];
		struct dsec_create_opts opts = wish_opts(wish, wish->fine);
		struct asked asked = ask(e->d, &opts);

		if (!(wish->limit & unenforced)) {
			if (!expect(!asked.status.code &&
				    !(asked.settings.unenforced & wish->limit)))
				note("%s: code %u at \"%s\"", wish->name, asked.status.code,
				     asked.status.step);
			sandbox_end(e->d, asked.id);
			continue;
		}
		note("%s: cannot be enforced here", wish->name);
		expect(names(&asked.status, DSEC_UNSUPPORTED, wish->name));
		opts.flags = DSEC_CREATE_ALLOW_DEGRADED;
		asked = ask(e->d, &opts);
		expect(!asked.status.code && asked.settings.unenforced & wish->limit);
		sandbox_end(e->d, asked.id);
	}
}

static void a_limit_out_of_its_range_is_refused_by_name(struct engine *e)
{
	for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
		struct dsec_create_opts opts = wish_opts(&wishes[i], wishes[i].wrong);
		struct asked asked;

		opts.flags = DSEC_CREATE_ALLOW_DEGRADED;
		asked = ask(e->d, &opts);
		expect(names(&asked.status, DSEC_INVALID, wishes[i].name));
	}
	struct dsec_create_opts both = create_opts(1);

	both.flags = DSEC_CREATE_SCHED_IDLE | DSEC_CREATE_ALLOW_DEGRADED;
	both.cpu_weight = 200;
	struct asked asked = ask(e->d, &both);

	expect(names(&asked.status, DSEC_INVALID, "cpu_weight"));
}

/* Never ignored: it would be destroyed. */
static void what_is_to_be_paused_is_refused_by_name(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);
	struct asked asked;

	opts.on_timeout = DSEC_ON_TIMEOUT_PAUSE;
	asked = ask(e->d, &opts);
	expect(names(&asked.status, DSEC_UNSUPPORTED, "on_timeout"));
	opts.on_timeout = DSEC_ON_TIMEOUT_DEFAULT;
	opts.on_disconnect = DSEC_DISCONNECT_PAUSE;
	asked = ask(e->d, &opts);
	expect(names(&asked.status, DSEC_UNSUPPORTED, "on_disconnect"));
}

static void a_default_that_cannot_be_enforced_is_told(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);
	struct asked asked = ask(e->d, &opts);

	/* The engine of this suite has a default for memory. */
	expect(!asked.status.code && asked.settings.memory_bytes == 512 * MIB);
	expect((asked.settings.unenforced & DSEC_LIMIT_MEMORY) ==
	       (unenforced_here(e) & DSEC_LIMIT_MEMORY));
	/* Nobody asked for these, so nothing is missing. */
	expect(!(asked.settings.unenforced & ~(uint32_t)DSEC_LIMIT_MEMORY));
	expect(asked.settings.ttl_s == 86400 && asked.settings.inodes == 262144 &&
	       asked.settings.pids_max == 1024 &&
	       asked.settings.on_timeout == DSEC_ON_TIMEOUT_DESTROY);
	sandbox_end(e->d, asked.id);
}

/* With a controller, or else by RLIMIT_NPROC of the range of ids. */
static void processes_stop_at_the_limit_that_was_asked_for(struct engine *e)
{
	static const char loop[] =
		"n=0; while [ $n -lt 60 ]; do sleep 60 >&- 2>&- & n=$((n+1)); echo $n; done";
	static const uint32_t limits[] = { 20, 40, 12, 0, 30 };

	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		struct dsec_create_opts opts = create_opts(1);

		opts.pids_max = limits[i];
		opts.memory_bytes = 0;
		struct asked asked = ask(e->d, &opts);
		auto_ran struct ran ran = shell_run(e->d, asked.id, loop);
		const struct dsec_output *out = ran_output(&ran, 1);
		unsigned lines = 0;

		for (size_t at = 0; out && at < out->head.bytes; at++)
			lines += ((const char *)out->head.data)[at] == '\n';
		/* PID 1 and the shell are two of them. */
		if (!expect(lines == (limits[i] ? limits[i] - 2 : 60)))
			note("%u of %u", lines, limits[i]);
		sandbox_end(e->d, asked.id);
	}
}

/* As the kernel says it; 0: it has none for this policy (before Linux 6.12). */
static uint64_t slice_of_ns(pid_t pid)
{
	struct sched_attr attributes = { .size = sizeof attributes };

	return syscall(SYS_sched_getattr, pid, &attributes, sizeof attributes, 0) < 0 ?
		       UINT64_MAX :
		       attributes.sched_runtime;
}

/* So a neighbour waits a short slice of each process of a sandbox that has many. */
static void all_of_an_engine_has_a_short_time_slice(struct engine *e)
{
	enum { SLICE_NS = 100000 };
	struct dsec_id id = sandbox_make(e->d);
	struct command c = SH("sleep 30 & wait");
	int64_t ticket = command_start(e->d, id, &c, NULL);
	pid_t pids[16];
	unsigned count;

	if (!slice_of_ns(0)) {
		note("left out: slices are not on this kernel");
	} else if (expect(until(10000, engine_running(e, "sleep") == 1))) {
		expect(slice_of_ns(engine_pid(e)) == SLICE_NS);
		count = engine_workers(e, pids, 16);
		for (unsigned i = 0; i < count; i++)
			expect(slice_of_ns(pids[i]) == SLICE_NS);
		count = engine_members(e, pids, 16);
		expect(count == 3); /* PID 1, the shell, sleep */
		for (unsigned i = 0; i < count; i++)
			expect(slice_of_ns(pids[i]) == SLICE_NS);
	}
	sandbox_end(e->d, id);
	auto_ran struct ran ran = command_wait(e->d, ticket);
}

/* E24: by no policy, priority or cookie. */
static void what_runs_when_idle_cannot_leave_it(struct engine *e)
{
	static const char all[] = "other 1 5\nbatch 1 5\nfifo 1 5\nrr 1 5\ndeadline 1 5\n"
				  "attributes 1 5\nnice 13 5\ncore 1 5\n";
	const struct command probe = { .argv = { "/bin/probe_sched" } };
	struct dsec_create_opts opts = create_opts(1);

	opts.flags |= DSEC_CREATE_SCHED_IDLE;
	struct asked asked = ask(e->d, &opts);
	auto_ran struct ran ran = command_run(e->d, asked.id, &probe);
	/* Nor what it starts. */
	auto_ran struct ran child =
		shell_run(e->d, asked.id, "cut -d' ' -f41 /proc/self/stat & wait");
	struct dsec_id other = sandbox_make(e->d);
	auto_ran struct ran usual = shell_run(e->d, other, "cut -d' ' -f41 /proc/self/stat");

	expect(asked.settings.flags & DSEC_CREATE_SCHED_IDLE);
	if (!expect(ran_says(&ran, all)))
		ran_note(&ran);
	expect(ran_says(&child, "5\n"));
	expect(ran_says(&usual, "0\n"));
	sandbox_end(e->d, asked.id);
	sandbox_end(e->d, other);
}

/* 41: allocate twice the limit: reason oom, with limit and peak; the sandbox lives on. */
static void what_goes_over_its_memory_ends_by_oom_alone(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);
	pid_t before[4], after[4];

	if (unenforced_here(e) & DSEC_LIMIT_MEMORY) {
		note("left out: no memory controller here");
		return;
	}
	opts.memory_bytes = 64 * MIB;
	struct asked asked = ask(e->d, &opts);
	struct dsec_id neighbour = sandbox_make(e->d);
	unsigned inits = engine_inits(e, before, 4);

	for (int i = 0; i < 3; i++) {
		/* The program itself, and one that somebody else would have outlived. */
		auto_ran struct ran ran =
			shell_run(e->d, asked.id,
				  i ? "dd if=/dev/zero of=/dev/null bs=128M count=1; echo alive" :
				      "exec dd if=/dev/zero of=/dev/null bs=128M count=1");
		const struct dsec_result *r = ran.result;

		/* Its commands may be killed, and so may whoever starts them. */
		auto_ran struct ran adj = shell_run(e->d, asked.id, "cat /proc/self/oom_score_adj");

		expect(adj.result && memcmp(ran_output(&adj, 1)->head.data, "-", 1));

		if (!expect(r && r->reason == DSEC_OOM && r->signal == 9 &&
			    r->memory_limit_bytes == 64 * MIB && r->memory_peak_bytes > 48 * MIB &&
			    r->memory_peak_bytes <= 64 * MIB))
			ran_note(&ran);
		auto_ran struct ran next = shell_run(e->d, asked.id, "echo well");
		auto_ran struct ran killed = shell_run(e->d, asked.id, "kill -9 $$");
		auto_ran struct ran other = shell_run(e->d, neighbour, "echo fine");

		expect(ran_says(&next, "well\n"));
		expect(killed.result && killed.result->reason == DSEC_SIGNAL);
		expect(ran_says(&other, "fine\n"));
	}
	expect(engine_inits(e, after, 4) == inits &&
	       !memcmp(before, after, inits * sizeof *before));
	sandbox_end(e->d, asked.id);
	sandbox_end(e->d, neighbour);
}

static uint64_t peak_of(struct dsec *d, struct dsec_id id)
{
	int64_t ticket = dsec_inspect(d, NULL, id);
	struct dsec_event *event;
	uint64_t peak = UINT64_MAX;

	if (!expect(ticket >= 0) || !expect(dsec_wait(d, ticket, -1, &event) == 0))
		return peak;
	if (event->body)
		peak = ((const struct dsec_inspected *)event->body)->memory_peak_bytes;
	dsec_event_free(event);
	return peak;
}

/* On a slot that others had, with as much memory. */
static void the_peak_of_one_with_a_limit_is_its_own(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);

	if (unenforced_here(e) & DSEC_LIMIT_MEMORY) {
		note("left out: no memory controller here");
		return;
	}
	for (int i = 0; i < 6; i++) {
		opts.memory_bytes = (64 + i % 3) * MIB;
		opts.network = i % 2 ? DSEC_NETWORK_PRIVATE : DSEC_NETWORK_NONE;
		struct asked asked = ask(e->d, &opts);
		uint64_t calm = peak_of(e->d, asked.id), high;
		auto_ran struct ran ran = shell_run(
			e->d, asked.id, "exec dd if=/dev/zero of=/dev/null bs=32M count=1");

		expect(ran_exited(&ran, 0));
		high = peak_of(e->d, asked.id);
		if (!expect(calm < 16 * MIB && high >= 32 * MIB && high <= opts.memory_bytes))
			note("%llu, then %llu", (unsigned long long)calm, (unsigned long long)high);
		/* Its limit is there, and so is what kills at it. */
		auto_ran struct ran hog = shell_run(
			e->d, asked.id, "exec dd if=/dev/zero of=/dev/null bs=128M count=1");

		expect(hog.result && hog.result->reason == DSEC_OOM &&
		       hog.result->memory_limit_bytes == opts.memory_bytes);
		sandbox_end(e->d, asked.id);
	}
}

static const struct claim claims[] = {
	CLAIM(the_peak_of_one_with_a_limit_is_its_own),
	CLAIM(a_limit_is_enforced_or_refused_by_name),
	CLAIM(a_limit_out_of_its_range_is_refused_by_name),
	CLAIM(what_is_to_be_paused_is_refused_by_name),
	CLAIM(a_default_that_cannot_be_enforced_is_told),
	CLAIM(processes_stop_at_the_limit_that_was_asked_for),
	CLAIM(all_of_an_engine_has_a_short_time_slice),
	CLAIM(what_runs_when_idle_cannot_leave_it),
	CLAIM(what_goes_over_its_memory_ends_by_oom_alone),
};

static const char *const arguments[] = { "--sandboxes-max", "16",   "--shards", "2",
					 "--memory",	    "512M", NULL };
static const struct suite suites[] = { SUITE("settings", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
