/*
 * Running a program and telling how it ended. Called by run.c and exec.c. On stdout goes what the
 * program wrote, byte for byte, or one JSON object; everything that dsec itself says goes to
 * stderr.
 */
#include "sdk/cli/outcome.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/streams.h"
#include "sdk/cli/terminal.h"
#include "sdk/cli/ulimit.h"
#include "sdk/cli/values.h"

enum { INPUT_BYTES_MAX = 768 << 10, OUTPUT_BYTES_DEFAULT = 1 << 20 };

struct outcome {
	struct session *session;
	struct dsec_id sandbox;
	int status; /* dsec's */
};

static const char *reason_name(uint32_t reason)
{
	static const char *const names[] = { "running", "exit",		"signal",
					     "timeout", "idle-timeout", "oom",
					     "killed",	"not-started",	"unknown" };

	return reason < sizeof(names) / sizeof(names[0]) ? names[reason] : "unknown";
}

/* ---- what is asked ---- */

static int stdin_read(char **ret_data, size_t *ret_bytes)
{
	auto_free char *data = malloc(INPUT_BYTES_MAX + 1);
	size_t bytes = 0;
	ssize_t n;

	if (!data)
		return -ENOMEM;
	while (bytes <= INPUT_BYTES_MAX) {
		n = stream_read(STDIN_FILENO, data + bytes, INPUT_BYTES_MAX + 1 - bytes);
		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		bytes += (size_t)n;
	}
	if (bytes > INPUT_BYTES_MAX)
		return -EFBIG;
	*ret_data = data;
	*ret_bytes = bytes;
	data = NULL;
	return 0;
}

/* `first` comes before them; NULL: nothing does. */
static struct dsec_bytes *bytes_list(const char *first, const char *const *texts, uint32_t count)
{
	struct dsec_bytes *list = calloc(count + 2, sizeof(*list));
	uint32_t at = 0;

	if (list && first)
		list[at++] = (struct dsec_bytes){ first, strlen(first) };
	for (uint32_t text = 0; list && text < count; text++)
		list[at++] = (struct dsec_bytes){ texts[text], strlen(texts[text]) };
	return list;
}

/* What an exec is asked with, and what its options point to. */
struct wish {
	struct dsec_exec_opts opts;
	struct dsec_bytes *argv, *env;
	struct dsec_rlimit *rlimits;
	char *term; /* TERM=... of the user's terminal */
};

static void wish_done(struct wish *wish)
{
	free(wish->argv);
	free(wish->env);
	free(wish->rlimits);
	free(wish->term);
}

static bool env_has(const struct texts *env, const char *name)
{
	for (uint32_t at = 0; at < env->count; at++)
		if (!strncmp(env->items[at], name, strlen(name)))
			return true;
	return false;
}

/* Programs on a terminal ask TERM what it can do: as much as the user's. */
static int wish_env(struct wish *wish, const struct options *o)
{
	const char *term = getenv("TERM");
	uint32_t count = o->env.count;

	wish->env = bytes_list(NULL, o->env.items, count); /* and room for one more */
	if (!wish->env)
		return -ENOMEM;
	if (o->tty && term && *term && !env_has(&o->env, "TERM=")) {
		if (asprintf(&wish->term, "TERM=%s", term) < 0)
			return -ENOMEM;
		wish->env[count++] = (struct dsec_bytes){ wish->term, strlen(wish->term) };
	}
	wish->opts.env = wish->env;
	wish->opts.env_count = count;
	return 0;
}

static int wish_limits(struct session *session, struct wish *wish)
{
	const struct texts *texts = &session->options->ulimits;

	wish->rlimits = calloc(texts->count + 1, sizeof(*wish->rlimits));
	if (!wish->rlimits)
		return -ENOMEM;
	for (uint32_t at = 0; at < texts->count; at++) {
		if (ulimit_parse(texts->items[at], &wish->rlimits[at]) == 0)
			continue;
		(void)session_refuse(session, "--ulimit: '%s' is not NAME=SOFT[:HARD]",
				     texts->items[at]);
		return -EINVAL;
	}
	wish->opts.rlimits = wish->rlimits;
	wish->opts.rlimit_count = texts->count;
	return 0;
}

/* 0, or -errno after a line on stderr. Undone by wish_done() in any case. */
static int wish_make(struct session *session, struct wish *wish)
{
	const struct options *o = session->options;
	uint64_t kept = o->output_bytes ? o->output_bytes : OUTPUT_BYTES_DEFAULT;
	int r;

	*wish = (struct wish){ .opts = {
				       .size = sizeof(wish->opts),
				       .flags = DSEC_EXEC_CAPTURE |
						(session->image_command ? DSEC_EXEC_IMAGE_COMMAND :
									  0),
				       .argc = (uint32_t)o->command_count + (o->entrypoint ? 1 : 0),
				       .cwd = o->cwd,
				       .user = o->user,
				       .timeout_ms = (uint32_t)o->timeout_ms,
				       .head_bytes = kept - kept / 2,
				       .tail_bytes = kept / 2 ? kept / 2 : 1,
			       } };
	wish->argv = bytes_list(o->entrypoint, (const char *const *)o->command,
				(uint32_t)o->command_count);
	wish->opts.argv = wish->argv;
	r = wish->argv ? wish_env(wish, o) : -ENOMEM;
	if (r < 0) {
		(void)session_fail_error(session, r, "exec", "no memory");
		return r;
	}
	return wish_limits(session, wish);
}

/* ---- what is told ---- */

static json_t *output_json(const struct dsec_output *output)
{
	json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_add_bytes(object, "text", output->head);
	if (output->tail.bytes)
		(void)json_add_bytes(object, "tail", output->tail);
	(void)json_object_set_new(object, "bytes_total", json_amount(output->total_bytes));
	(void)json_object_set_new(object, "truncated", json_boolean(output->truncated));
	return object;
}

static json_t *result_json(struct dsec_id sandbox, const struct dsec_event *event)
{
	const struct dsec_result *result = event->body;
	json_t *object = json_status(&event->status);

	(void)json_object_set_new(object, "sandbox", json_id(sandbox));
	if (!result)
		return object;
	(void)json_object_set_new(object, "exec", json_amount(result->exec));
	(void)json_object_set_new(object, "reason", json_string(reason_name(result->reason)));
	(void)json_object_set_new(object, "code",
				  result->reason == DSEC_EXIT ||
						  result->reason == DSEC_NOT_STARTED ?
					  json_integer(result->exit_code) :
					  json_null());
	(void)json_object_set_new(object, "signal",
				  result->signal ? json_integer(result->signal) : json_null());
	(void)json_object_set_new(object, "wall_ms", json_real((double)result->wall_us / 1000));
	(void)json_object_set_new(object, "cpu_ms",
				  result->cpu_us > INT64_MAX ?
					  json_null() :
					  json_real((double)result->cpu_us / 1000));
	(void)json_object_set_new(object, "memory_peak_bytes",
				  json_amount(result->memory_peak_bytes));
	if (result->reason == DSEC_OOM)
		(void)json_object_set_new(object, "memory_limit_bytes",
					  json_amount(result->memory_limit_bytes));
	for (uint32_t at = 0; at < result->output_count; at++) {
		const struct dsec_output *output = &result->outputs[at];
		const char *name = output->stream == 1 ? "stdout" : "stderr";

		(void)json_object_set_new(object, name, output_json(output));
	}
	return object;
}

/* Whether it got out is told at the end, by main(). */
static void bytes_write(FILE *file, struct dsec_bytes bytes)
{
	if (bytes.bytes)
		(void)fwrite(bytes.data, 1, bytes.bytes, file);
	(void)fflush(file);
}

/* Head and tail; what lies between is told on stderr, where it cannot be taken for output. */
static void output_show(const struct options *options, const struct dsec_output *output, FILE *file)
{
	uint64_t kept = output->head.bytes + output->tail.bytes;
	char gone[VALUE_TEXT_BYTES];

	bytes_write(file, output->head);
	if (output->truncated) {
		value_print_count(output->total_bytes > kept ? output->total_bytes - kept : 0,
				  gone);
		report_note(options, "%s: %s bytes are not kept here; %s",
			    output->stream == 1 ? "stdout" : "stderr", gone,
			    options->output_bytes < OUTPUT_BYTES_MAX ? "--output-max keeps more" :
								       "no more can be");
	}
	bytes_write(file, output->tail);
}

static void oom_tell(const struct options *options, const struct dsec_result *result,
		     const char *kept)
{
	char limit[VALUE_TEXT_BYTES], peak[VALUE_TEXT_BYTES];

	value_print_bytes(result->memory_limit_bytes, limit);
	value_print_bytes(result->memory_peak_bytes, peak);
	report_note(options,
		    "oom: killed at the memory limit of %s, peak %s, %s bytes of output kept",
		    limit, peak, kept);
}

static void end_tell(struct session *session, const struct dsec_event *event)
{
	const struct dsec_result *result = event->body;
	const struct options *options = session->options;
	char kept[VALUE_TEXT_BYTES];
	uint64_t bytes = 0;

	for (uint32_t at = 0; at < result->output_count; at++)
		bytes += result->outputs[at].head.bytes + result->outputs[at].tail.bytes;
	value_print_count(bytes, kept);
	if (result->reason == DSEC_TIMEOUT || result->reason == DSEC_IDLE_TIMEOUT)
		report_note(options,
			    "timeout after %" PRIu64 ".%" PRIu64
			    " s: killed, %s bytes of output kept (exec %" PRIu64 ")",
			    result->wall_us / 1000000, result->wall_us / 100000 % 10, kept,
			    result->exec);
	else if (result->reason == DSEC_OOM)
		oom_tell(options, result, kept);
	else if (result->reason == DSEC_KILLED)
		report_note(options, "killed: the sandbox was destroyed");
	else if (result->reason == DSEC_END_UNKNOWN)
		report_note(options, "nobody saw how the program ended");
	else if (result->reason == DSEC_NOT_STARTED)
		(void)session_fail(session, "starting the program", &event->status);
}

/* As a shell would say it. */
static int exit_status(const struct dsec_event *event)
{
	const struct dsec_result *result = event->body;

	if (!result)
		return event->status.code == DSEC_DEADLINE ? EXIT_TIMED_OUT : EXIT_TROUBLE;
	switch (result->reason) {
	case DSEC_EXIT:
		return result->exit_code & 0xff;
	case DSEC_SIGNAL:
		return 128 + (result->signal & 0x7f);
	case DSEC_OOM:
	case DSEC_KILLED:
		return 128 + 9;
	case DSEC_TIMEOUT:
	case DSEC_IDLE_TIMEOUT:
		return EXIT_TIMED_OUT;
	case DSEC_NOT_STARTED:
		return result->exit_code == 126 ? 126 : 127;
	default:
		return EXIT_TROUBLE;
	}
}

static void outcome_show(struct outcome *outcome, const struct dsec_event *event)
{
	struct session *session = outcome->session;
	const struct options *options = session->options;
	const struct dsec_result *result = event->body;
	auto_json json_t *json = result_json(outcome->sandbox, event);

	outcome->status = exit_status(event);
	session_tell(session, json);
	if (!result) {
		(void)session_fail(session, "exec", &event->status);
		return;
	}
	for (uint32_t at = 0; at < result->output_count && !options->json; at++)
		output_show(options, &result->outputs[at],
			    result->outputs[at].stream == 1 ? stdout : stderr);
	if (!options->json || result->reason == DSEC_NOT_STARTED)
		end_tell(session, event);
}

static void last_show(void *state, const struct dsec_event *event)
{
	if (event->flags & DSEC_LAST)
		outcome_show(state, event);
}

static int stdin_refuse(struct session *session, int r)
{
	char text[128];

	(void)snprintf(text, sizeof(text), "stdin: %s%s", strerror(-r),
		       r == -EFBIG ? " (at most 768 KiB)" : ""); /* fits */
	return session_fail_error(session, r, "stdin", text);
}

static void run_captured(struct outcome *outcome, struct wish *wish)
{
	struct session *session = outcome->session;
	auto_free char *data = NULL;
	int r = 0;

	if (session->options->input)
		r = stdin_read(&data, &wish->opts.input.bytes);
	if (r < 0) {
		outcome->status = stdin_refuse(session, r);
		return;
	}
	wish->opts.input.data = data;
	/* What failed is remembered, and the status is trouble until there is a result. */
	(void)session_events(session, dsec_exec(session->d, NULL, outcome->sandbox, &wish->opts),
			     NULL, last_show, outcome);
}

static void run_on_terminal(struct outcome *outcome, struct wish *wish)
{
	struct session *session = outcome->session;
	struct terminal_wish terminal = {
		.sandbox = outcome->sandbox,
		.opts = &wish->opts,
		.input = session->options->input,
		.last = last_show,
		.state = outcome,
	};
	int r = terminal_run(session, &terminal);

	if (r > 0)
		outcome->status = r;
}

int outcome_run(struct session *session, struct dsec_id sandbox)
{
	struct outcome outcome = { session, sandbox, EXIT_TROUBLE };
	struct wish wish;

	if (session->options->tty && session->options->json)
		return session_refuse(session, "--tty and --json exclude each other");
	if (wish_make(session, &wish) == 0) {
		if (session->options->tty)
			run_on_terminal(&outcome, &wish);
		else
			run_captured(&outcome, &wish);
	}
	wish_done(&wish);
	return outcome.status;
}
