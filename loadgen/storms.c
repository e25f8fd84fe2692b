/*
 * dsec-storms: how much slower a neighbour's short commands are while another sandbox does its
 * worst. Owns the rounds: alone and beside in turn, so that what else the machine does touches both
 * alike, and each figure is the median of the rounds. Speaks dsec.h alone. Must hold: every command
 * of the neighbour is looked at, and all that was made is destroyed.
 */
#include "loadgen/storms.h"

#include "loadgen/clock.h"

#include <dsec/dsec.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	WAIT_MS = 60 * 1000,
	RISE_MS = 300,	 /* until the storm is as strong as it gets */
	SETTLE_MS = 300, /* until what it left was freed */
	SAMPLES_MAX = 1 << 20,
	ARENA_BYTES = 4 << 20, /* the storm is sent whole */
};

static const char storm_path[] = "/tmp/storm";

struct storms {
	const struct storms_options *options;
	struct dsec *d;
	struct dsec_id neighbour;
	uint64_t *samples_ns; /* of one slice */
	uint64_t failed;
	void *program;
	size_t program_bytes;
};

/* ---- asking ---- */

static int trouble(const char *what, const struct dsec_status *s)
{
	fprintf(stderr, "dsec-storms: %s: %s%s%s\n", what, s->step, *s->detail ? ": " : "",
		s->detail);
	return -EIO;
}

/* To the LAST, whose status it is; `see` gets every event before. */
static int ticket_end(struct storms *s, int64_t ticket, struct dsec_status *ret,
		      void (*see)(void *state, const struct dsec_event *event), void *state)
{
	struct dsec_event *event;
	bool is_last = false;
	int r;

	if (ticket < 0) {
		fprintf(stderr, "dsec-storms: %s\n", dsec_error(s->d, ticket));
		return (int)ticket;
	}
	while (!is_last) {
		r = dsec_wait(s->d, ticket, WAIT_MS, &event);
		if (r < 0)
			return r;
		is_last = event->flags & DSEC_LAST;
		if (is_last)
			*ret = event->status;
		if (see)
			see(state, event);
		dsec_event_free(event);
	}
	return 0;
}

static void id_see(void *state, const struct dsec_event *event)
{
	if (event->kind == DSEC_EV_CREATED && event->status.code == DSEC_OK)
		*(struct dsec_id *)state = event->subject;
	else if (event->kind == DSEC_EV_CREATED)
		(void)trouble("create", &event->status);
}

static int sandbox_make(struct storms *s, bool is_stormer, struct dsec_id *ret)
{
	const struct storms_options *o = s->options;
	struct dsec_create_opts opts = {
		.size = sizeof(opts),
		.image = o->image,
		.flags = DSEC_CREATE_ALLOW_DEGRADED,
		.network = DSEC_NETWORK_NONE,
		.on_disconnect = DSEC_DISCONNECT_DESTROY,
	};
	struct dsec_status status = { 0 };
	int r;

	if (is_stormer) {
		opts.flags |= o->is_sched_idle ? DSEC_CREATE_SCHED_IDLE : 0;
		opts.pids_max = o->pids_max;
		opts.cpu_max_permille = o->cpu_permille;
		opts.cpu_weight = o->is_sched_idle ? 0 : o->cpu_weight;
		opts.memory_bytes = o->memory_bytes;
		opts.disk_bytes = 64 << 20;
		opts.inodes = 20000;
	}
	*ret = (struct dsec_id){ 0 };
	r = ticket_end(s, dsec_create(s->d, NULL, &opts), &status, id_see, ret);
	if (!r && !ret->hi && !ret->lo)
		r = -EIO;
	return r;
}

static int sandbox_end(struct storms *s, struct dsec_id id)
{
	struct dsec_select select = { .size = sizeof(select), .count = 1, .ids = &id };
	struct dsec_status status = { 0 };
	int r = ticket_end(s, dsec_destroy(s->d, NULL, &select), &status, NULL, NULL);

	return !r && status.code ? trouble("destroy", &status) : r;
}

static int storm_bring(struct storms *s, struct dsec_id id)
{
	struct dsec_file_opts opts = {
		.size = sizeof(opts),
		.verb = DSEC_FILE_WRITE,
		.flags = DSEC_FILE_MODE,
		.mode = 0755,
		.path = { storm_path, sizeof(storm_path) - 1 },
		.input = { s->program, s->program_bytes },
	};
	struct dsec_status status = { 0 };
	int r = ticket_end(s, dsec_write(s->d, NULL, id, &opts), &status, NULL, NULL);

	return !r && status.code ? trouble("write", &status) : r;
}

/* ---- a slice: the neighbour's commands at their rate ---- */

static int command_run(struct storms *s, struct dsec_id id, const char *program)
{
	const struct dsec_bytes argv[] = { { program, strlen(program) } };
	struct dsec_exec_opts opts = { .size = sizeof(opts),
				       .flags = DSEC_EXEC_CAPTURE,
				       .argv = argv,
				       .argc = 1,
				       .timeout_ms = WAIT_MS };
	struct dsec_event *event;
	int64_t ticket = dsec_exec(s->d, NULL, id, &opts);
	bool is_last = false;
	int r;

	if (ticket < 0)
		return (int)ticket;
	while (!is_last) {
		r = dsec_wait(s->d, ticket, WAIT_MS, &event);
		if (r < 0)
			return r;
		is_last = event->flags & DSEC_LAST;
		if (is_last) {
			const struct dsec_result *result = event->body;

			s->failed += !result || result->reason != DSEC_EXIT || result->exit_code;
		}
		dsec_event_free(event);
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Latency counts from when a command was meant to start: a stall is seen by all it delayed. */
static int slice_run(struct storms *s, struct storms_slice *ret)
{
	const struct storms_options *o = s->options;
	uint64_t step_ns = (uint64_t)(1e9 / o->rate_per_s);
	uint64_t begun_ns = clock_now_ns(), intended_ns = begun_ns, count = 0;
	uint64_t end_ns = begun_ns + (uint64_t)(o->seconds * 1e9);

	while (intended_ns < end_ns && count < SAMPLES_MAX) {
		int r;

		clock_wait_readable(-1, intended_ns);
		r = command_run(s, s->neighbour, o->command);
		if (r < 0)
			return r;
		s->samples_ns[count++] = clock_now_ns() - intended_ns;
		intended_ns += step_ns;
	}
	if (!count)
		return -EINVAL;
	qsort(s->samples_ns, count, sizeof(*s->samples_ns), by_value);
	ret->p50_us = (double)s->samples_ns[count / 2] / 1e3;
	ret->p99_us = (double)s->samples_ns[count - 1 - count / 100] / 1e3;
	return 0;
}

/* ---- rounds ---- */

static void exec_see(void *state, const struct dsec_event *event)
{
	if (event->exec)
		*(uint64_t *)state = event->exec;
}

static int64_t storm_start(struct storms *s, struct dsec_id id, const char *kind)
{
	const struct dsec_bytes argv[] = { { storm_path, sizeof(storm_path) - 1 },
					   { kind, strlen(kind) } };
	struct dsec_exec_opts opts = {
		.size = sizeof(opts),
		.flags = DSEC_EXEC_DETACH,
		.argv = argv,
		.argc = 2,
		.timeout_ms = (uint32_t)(s->options->seconds * 3000) + 10000,
	};

	return dsec_exec(s->d, NULL, id, &opts);
}

static int storm_end(struct storms *s, struct dsec_id id, uint64_t exec)
{
	struct dsec_attach_opts attach = { .size = sizeof(attach), .exec = exec };
	struct dsec_status status = { 0 };
	int r;

	/* It may miss a process that was just born: until the exec is over, and nothing is left. */
	for (int i = 0; i < 100; i++) {
		r = ticket_end(s, dsec_signal(s->d, NULL, id, exec, SIGKILL | DSEC_SIGNAL_ALL),
			       &status, NULL, NULL);
		if (r < 0 || status.code == DSEC_CONFLICT)
			break;
		clock_wait_readable(-1, clock_now_ns() + 20 * CLOCK_MS_NS);
	}
	return r < 0 ? r : ticket_end(s, dsec_attach(s->d, NULL, id, &attach), &status, NULL, NULL);
}

/* A sandbox of its own for each round: what one storm left is not the next one's. */
static int beside_run(struct storms *s, const char *kind, struct storms_slice *ret)
{
	struct dsec_status status = { 0 };
	struct dsec_id id;
	uint64_t exec = 0;
	int r, ended;

	r = sandbox_make(s, true, &id);
	if (r < 0)
		return r;
	r = storm_bring(s, id);
	if (r >= 0)
		r = ticket_end(s, storm_start(s, id, kind), &status, exec_see, &exec);
	if (!r && status.code)
		r = trouble("storm", &status);
	if (!r) {
		clock_wait_readable(-1, clock_now_ns() + RISE_MS * CLOCK_MS_NS);
		r = slice_run(s, ret);
		ended = storm_end(s, id, exec);
		r = r < 0 ? r : ended;
	}
	ended = sandbox_end(s, id);
	clock_wait_readable(-1, clock_now_ns() + SETTLE_MS * CLOCK_MS_NS);
	return r < 0 ? r : ended;
}

static int by_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *values, uint32_t count)
{
	double sorted[STORMS_ROUNDS_MAX];

	memcpy(sorted, values, count * sizeof(*values));
	qsort(sorted, count, sizeof(*sorted), by_double);
	return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static int kind_run(struct storms *s, const char *kind, struct storms_result *ret)
{
	double alone50[STORMS_ROUNDS_MAX], alone99[STORMS_ROUNDS_MAX];
	double beside50[STORMS_ROUNDS_MAX], beside99[STORMS_ROUNDS_MAX];
	uint32_t rounds = s->options->rounds;

	for (uint32_t i = 0; i < rounds; i++) {
		struct storms_slice alone, beside;
		int r = slice_run(s, &alone);

		if (r >= 0)
			r = beside_run(s, kind, &beside);
		if (r < 0)
			return r;
		alone50[i] = alone.p50_us;
		alone99[i] = alone.p99_us;
		beside50[i] = beside.p50_us;
		beside99[i] = beside.p99_us;
	}
	*ret = (struct storms_result){
		.kind = kind,
		.alone = { median(alone50, rounds), median(alone99, rounds) },
		.beside = { median(beside50, rounds), median(beside99, rounds) },
	};
	return 0;
}

/* ---- telling ---- */

static void result_print(const struct storms_result *r)
{
	printf("%-12s alone p50 %6.2f p99 %6.2f ms   beside p50 %6.2f p99 %6.2f ms   "
	       "x p50 %5.2f  x p99 %5.2f\n",
	       r->kind, r->alone.p50_us / 1e3, r->alone.p99_us / 1e3, r->beside.p50_us / 1e3,
	       r->beside.p99_us / 1e3, r->beside.p50_us / r->alone.p50_us,
	       r->beside.p99_us / r->alone.p99_us);
	fflush(stdout);
}

static int result_write(const struct storms *s, const struct storms_result *r)
{
	const struct storms_options *o = s->options;
	json_t *root;
	FILE *file;
	int failed;

	if (!o->json_path)
		return 0;
	file = fopen(o->json_path, "ae");
	if (!file)
		return -errno;
	root = json_pack("{s:s+, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "scenario",
			 "storm-", r->kind, "setting", o->name, "rounds", (int)o->rounds,
			 "rate_per_s", o->rate_per_s, "alone_p50_us", r->alone.p50_us,
			 "alone_p99_us", r->alone.p99_us, "beside_p50_us", r->beside.p50_us,
			 "beside_p99_us", r->beside.p99_us, "ratio_p50",
			 r->beside.p50_us / r->alone.p50_us, "ratio_p99",
			 r->beside.p99_us / r->alone.p99_us);
	failed = !root || json_dumpf(root, file, JSON_REAL_PRECISION(9)) ||
		 fputc('\n', file) == EOF;
	failed |= fclose(file) != 0;
	json_decref(root);
	return failed ? -EIO : 0;
}

/* ---- all of it ---- */

static int program_map(struct storms *s)
{
	int fd = open(s->options->program, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	s->program_bytes = (size_t)st.st_size;
	s->program = mmap(NULL, s->program_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	(void)close(fd);
	return s->program == MAP_FAILED ? -errno : 0;
}

static int storms_run(struct storms *s)
{
	const struct storms_options *o = s->options;
	int r = sandbox_make(s, false, &s->neighbour);

	for (uint32_t i = 0; !r && i < 20; i++) /* until it is warm */
		r = command_run(s, s->neighbour, o->command);
	for (uint32_t i = 0; !r && i < o->kind_count; i++) {
		struct storms_result result;

		r = kind_run(s, o->kinds[i], &result);
		if (r < 0)
			break;
		result_print(&result);
		r = result_write(s, &result);
	}
	if (s->failed) {
		printf("%" PRIu64 " of the neighbour's commands failed\n", s->failed);
		r = r < 0 ? r : -EBADE;
	}
	return r;
}

int main(int argc, char **argv)
{
	struct storms_options options;
	struct storms s = { .options = &options };
	const struct dsec_open_opts opts = { .size = sizeof(opts),
					     .arena_bytes = ARENA_BYTES,
					     .reconnect_ms = UINT32_MAX };
	int r = storms_options_parse(&options, argc, argv);

	if (r)
		return r < 0 ? 2 : 0;
	(void)prctl(PR_SET_TIMERSLACK, 1ul); /* at worst they start late, and that is counted */
	s.samples_ns = calloc(SAMPLES_MAX, sizeof(*s.samples_ns));
	r = s.samples_ns ? program_map(&s) : -ENOMEM;
	if (!r)
		r = dsec_open(&opts, &s.d);
	if (!r)
		r = storms_run(&s);
	if (r < 0)
		fprintf(stderr, "dsec-storms: %s\n", strerror(-r));
	dsec_close(s.d); /* and with it the sandboxes */
	free(s.samples_ns);
	return r < 0;
}
