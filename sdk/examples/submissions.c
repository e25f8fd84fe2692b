/*
 * A judge on functions: a submission is compiled once, then called once for each input in one
 * request, and each call has its verdict. C by a function that compiles and one that runs what came
 * of it; Python by one that runs the source. Usage: submissions IMAGE SOURCE.c|SOURCE.py INPUT...
 *
 * What a call gets is one input: the length of the program as eight digits, the program, and then
 * what the program is to read.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsec/dsec.h>

enum {
	BYTES_MAX = 1 << 20,
	REQUEST_BYTES = 1000 << 10,
	ARENA_BYTES = 4 << 20,
	HEADER_BYTES = 8,
	INPUTS_MAX = 1024,
};

static const char compile[] = "cc -O2 -s -x c -o /tmp/a - && cat /tmp/a";
/* head(1) takes no more than it is asked for, since the input is a file. */
static const char run_c[] = "head -c \"$(head -c 8)\" >/tmp/a && chmod +x /tmp/a && exec /tmp/a";
static const char run_python[] = "import sys\n"
				 "file = sys.stdin.buffer\n"
				 "text = file.read(int(file.read(8)))\n"
				 "exec(compile(text, 'submission', 'exec'))\n";

struct bytes {
	char *data;
	size_t count;
};

static void die(struct dsec *d, const char *what, int64_t r)
{
	(void)fprintf(stderr, "submissions: %s: %s\n", what, dsec_error(d, r));
	exit(1);
}

static struct bytes file_read(const char *path)
{
	struct bytes all = { malloc(BYTES_MAX), 0 };
	FILE *file = fopen(path, "re");

	if (!file || !all.data) {
		perror(path);
		exit(1);
	}
	all.count = fread(all.data, 1, BYTES_MAX, file);
	(void)fclose(file);
	return all;
}

static struct dsec_id function_make(struct dsec *d, const struct dsec_function_opts *opts)
{
	int64_t ticket = dsec_function(d, NULL, opts);
	struct dsec_event *e = NULL;
	struct dsec_id id;
	int r = ticket < 0 ? (int)ticket : dsec_wait(d, ticket, -1, &e);

	if (r < 0)
		die(d, opts->name, r);
	if (e->status.code != DSEC_OK) {
		(void)fprintf(stderr, "submissions: %s: %s\n", opts->name, e->status.detail);
		exit(1);
	}
	id = e->subject;
	dsec_event_free(e);
	return id;
}

/* Two seconds of CPU time; fresh, since it leaves a file behind. */
static struct dsec_id shell_function(struct dsec *d, const char *image, const char *name,
				     const char *script)
{
	const struct dsec_bytes argv[] = { { "sh", 2 }, { "-c", 2 }, { script, strlen(script) } };
	const struct dsec_function_opts opts = { .size = sizeof(opts),
						 .verb = DSEC_FUNCTION_REGISTER,
						 .name = name,
						 .image = image,
						 .argv = argv,
						 .argc = 3,
						 .output_bytes = BYTES_MAX,
						 .cpu_ms = 2000 };

	return function_make(d, &opts);
}

/* In a domain: one call after the other in the same namespaces, as long as they stay clean. */
static struct dsec_id python_function(struct dsec *d, const char *image)
{
	const struct dsec_bytes argv[] = { { "python3", 7 },
					   { "-c", 2 },
					   { run_python, sizeof(run_python) - 1 } };
	const struct dsec_function_opts opts = { .size = sizeof(opts),
						 .verb = DSEC_FUNCTION_REGISTER,
						 .name = "submissions.python",
						 .image = image,
						 .argv = argv,
						 .argc = 3,
						 .isolation = DSEC_ISOLATION_DOMAIN,
						 .output_bytes = BYTES_MAX,
						 .cpu_ms = 2000 };

	return function_make(d, &opts);
}

/* One call: what it wrote, and whether that is a program. */
static bool compiled(struct dsec *d, struct dsec_id function, struct bytes source,
		     struct bytes *ret)
{
	const struct dsec_bytes input = { source.data, source.count };
	int64_t ticket = dsec_invoke(d, NULL, function, &input, 1);
	bool good = false, last = false;

	*ret = (struct bytes){ malloc(BYTES_MAX), 0 };
	while (!last) {
		struct dsec_event *e = NULL;
		const struct dsec_called *called;
		int r = ticket < 0 ? (int)ticket : dsec_wait(d, ticket, -1, &e);

		if (r < 0 || !ret->data)
			die(d, "compile", r);
		if (e->kind == DSEC_EV_DATA && e->stream == 1 &&
		    ret->count + e->bytes <= BYTES_MAX) {
			memcpy(ret->data + ret->count, e->data, e->bytes);
			ret->count += e->bytes;
		} else if (e->kind == DSEC_EV_DATA) {
			(void)fwrite(e->data, 1, e->bytes, stderr); /* what the compiler says */
		}
		called = e->kind == DSEC_EV_DONE ? e->body : NULL;
		good = called && called->verdict == DSEC_VERDICT_OK;
		last = e->flags & DSEC_LAST;
		dsec_event_free(e);
	}
	return good;
}

static struct dsec_bytes submission(struct bytes program, const char *path)
{
	struct bytes input = file_read(path);
	char *all = malloc(HEADER_BYTES + 1 + program.count + input.count);

	if (!all)
		exit(1);
	(void)snprintf(all, HEADER_BYTES + 1, "%08zu", program.count % 100000000);
	memcpy(all + HEADER_BYTES, program.data, program.count);
	memcpy(all + HEADER_BYTES + program.count, input.data, input.count);
	free(input.data);
	return (struct dsec_bytes){ all, HEADER_BYTES + program.count + input.count };
}

static void verdict_print(const char *path, const struct dsec_event *e)
{
	static const char *const names[] = { "?",
					     "ok",
					     "time limit",
					     "memory limit",
					     "runtime error",
					     "output limit",
					     "internal error" };
	const struct dsec_called *called = e->body;
	uint32_t verdict = called ? called->verdict : DSEC_VERDICT_IE;

	(void)printf("%s: %s, %.1f ms of CPU time\n", path,
		     names[verdict < sizeof(names) / sizeof(names[0]) ? verdict : 0],
		     called ? (double)called->cpu_us / 1e3 : 0);
}

/* As many inputs as go into one request; verdicts come as they are found. How many. */
static uint32_t judge(struct dsec *d, struct dsec_id function, struct bytes program, char **paths)
{
	struct dsec_bytes inputs[INPUTS_MAX];
	uint32_t count = 0;
	size_t bytes = 0;
	int64_t ticket;
	bool last = false;

	while (paths[count] && count < INPUTS_MAX &&
	       (!count || bytes + inputs[count - 1].bytes < REQUEST_BYTES)) {
		inputs[count] = submission(program, paths[count]);
		bytes += inputs[count++].bytes;
	}
	ticket = dsec_invoke(d, NULL, function, inputs, count);
	while (!last) {
		struct dsec_event *e = NULL;
		int r = ticket < 0 ? (int)ticket : dsec_wait(d, ticket, -1, &e);

		if (r < 0)
			die(d, "judge", r);
		last = e->flags & DSEC_LAST;
		/* Of several the last event is nobody's. */
		if (e->kind == DSEC_EV_DONE && (!last || count == 1))
			verdict_print(paths[e->index], e);
		dsec_event_free(e);
	}
	for (uint32_t at = 0; at < count; at++)
		free((void *)inputs[at].data);
	return count;
}

int main(int argc, char **argv)
{
	struct dsec_open_opts open = { .size = sizeof(open), .arena_bytes = ARENA_BYTES };
	struct bytes source, program;
	struct dsec_id function;
	struct dsec *d;
	size_t bytes;
	int r;

	if (argc < 4)
		return fputs("usage: submissions IMAGE SOURCE.c|SOURCE.py INPUT...\n", stderr), 1;
	r = dsec_open(&open, &d);
	if (r < 0)
		return fprintf(stderr, "submissions: %s\n", dsec_error(NULL, r)), 1;
	source = file_read(argv[2]);
	bytes = strlen(argv[2]);
	if (bytes > 3 && !strcmp(argv[2] + bytes - 3, ".py")) {
		program = source;
		function = python_function(d, argv[1]);
	} else {
		function = shell_function(d, argv[1], "submissions.compile", compile);
		if (!compiled(d, function, source, &program)) {
			(void)printf("%s: compile error\n", argv[2]);
			return dsec_close(d), 1;
		}
		function = shell_function(d, argv[1], "submissions.run", run_c);
	}
	for (argv += 3; *argv;)
		argv += judge(d, function, program, argv);
	if (program.data != source.data)
		free(program.data);
	free(source.data);
	dsec_close(d);
	return 0;
}
