/*
 * A judge: the source is compiled once, then runs once for each input, all in one sandbox, and each
 * run gets its verdict. Usage: judge IMAGE SOURCE.c INPUT...
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsec/dsec.h>

enum { COMPILE_MS = 30 * 1000, RUN_MS = 2 * 1000, OUTPUT_BYTES = 64 << 10, ARENA_BYTES = 4 << 20 };

static struct dsec_bytes file_read(const char *path)
{
	struct dsec_bytes all = { NULL, 0 };
	FILE *file = fopen(path, "re");
	char *data = malloc(1 << 20); /* as much as goes in one piece */

	if (file && data)
		all = (struct dsec_bytes){ data, fread(data, 1, 1 << 20, file) };
	if (file)
		(void)fclose(file);
	return all;
}

/* The last event of a request; the others are dropped. */
static struct dsec_event *last_of(struct dsec *d, int64_t ticket)
{
	struct dsec_event *e = NULL;
	int r = ticket < 0 ? (int)ticket : 0;

	while (r == 0 && (r = dsec_wait(d, ticket, -1, &e)) == 0 && !(e->flags & DSEC_LAST))
		dsec_event_free(e);
	if (r == 0)
		return e;
	(void)fprintf(stderr, "judge: %s\n", dsec_error(d, r));
	exit(1);
}

static const char *verdict_of(const struct dsec_event *e)
{
	const struct dsec_result *result = e->body;

	if (e->status.blame == DSEC_BLAME_PLATFORM || !result)
		return "internal error"; /* says nothing of the program */
	if (result->output_count && result->outputs[0].total_bytes > OUTPUT_BYTES)
		return "output limit";
	switch (result->reason) {
	case DSEC_EXIT:
		return result->exit_code ? "runtime error" : "ok";
	case DSEC_TIMEOUT:
		return "time limit";
	case DSEC_OOM:
		return "memory limit";
	default:
		return "runtime error";
	}
}

/* It goes with the connection, however this program ends. */
static struct dsec_id sandbox_make(struct dsec *d, const char *image)
{
	struct dsec_create_opts opts = { .size = sizeof(opts),
					 .image = image,
					 .on_disconnect = DSEC_DISCONNECT_DESTROY };
	int64_t ticket = dsec_create(d, NULL, &opts);
	struct dsec_event *e;
	struct dsec_id id;

	if (ticket < 0 || dsec_wait(d, ticket, -1, &e) < 0 || e->status.code != DSEC_OK) {
		(void)fprintf(stderr, "judge: no sandbox of %s\n", image);
		exit(1);
	}
	id = e->subject;
	dsec_event_free(e);
	dsec_event_free(last_of(d, ticket));
	return id;
}

static void run_all(struct dsec *d, struct dsec_id sandbox, char **inputs)
{
	const struct dsec_bytes run = { "/tmp/a", 6 };
	struct dsec_exec_opts opts = { .size = sizeof(opts),
				       .flags = DSEC_EXEC_CAPTURE,
				       .argv = &run,
				       .argc = 1,
				       .timeout_ms = RUN_MS };

	for (; *inputs; inputs++) {
		const struct dsec_result *result;
		struct dsec_event *e;

		opts.input = file_read(*inputs);
		e = last_of(d, dsec_exec(d, NULL, sandbox, &opts));
		result = e->body;
		(void)printf("%s: %s, %.1f ms\n", *inputs, verdict_of(e),
			     result ? (double)result->wall_us / 1e3 : 0);
		dsec_event_free(e);
		free((void *)opts.input.data);
	}
}

int main(int argc, char **argv)
{
	const struct dsec_bytes compile[] = {
		{ "cc", 2 }, { "-O2", 3 }, { "-o", 2 }, { "/tmp/a", 6 }, { "/tmp/a.c", 8 }
	};
	struct dsec_exec_opts opts = { .size = sizeof(opts),
				       .flags = DSEC_EXEC_CAPTURE,
				       .argv = compile,
				       .argc = 5,
				       .timeout_ms = COMPILE_MS };
	struct dsec_file_opts source = { .size = sizeof(source), .path = compile[4] };
	struct dsec_open_opts open = { .size = sizeof(open), .arena_bytes = ARENA_BYTES };
	struct dsec_event *e;
	struct dsec_id sandbox;
	struct dsec *d;
	bool compiled;
	int r;

	if (argc < 4)
		return fputs("usage: judge IMAGE SOURCE.c INPUT...\n", stderr), 1;
	r = dsec_open(&open, &d);
	if (r < 0)
		return fprintf(stderr, "judge: %s\n", dsec_error(NULL, r)), 1;
	sandbox = sandbox_make(d, argv[1]);
	source.input = file_read(argv[2]);
	dsec_event_free(last_of(d, dsec_write(d, NULL, sandbox, &source)));
	free((void *)source.input.data);
	e = last_of(d, dsec_exec(d, NULL, sandbox, &opts));
	compiled = strcmp(verdict_of(e), "ok") == 0;
	dsec_event_free(e);
	if (compiled)
		run_all(d, sandbox, argv + 3);
	else
		(void)printf("%s: compile error\n", argv[2]);
	dsec_close(d);
	return compiled ? 0 : 1;
}
