/*
 * `dsec call`: register, list, remove and call functions. Called by main.c. A function is named on
 * the command line and known to the engine by its id: the list says which.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sdk/cli/call_show.h"
#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/table.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

enum { INPUT_BYTES_MAX = 1 << 20, READ_BYTES = 64 << 10 };

/* ---- register ---- */

static struct dsec_bytes *bytes_of(const char *const *texts, uint32_t count)
{
	struct dsec_bytes *list = calloc(count + 1, sizeof(*list));

	for (uint32_t at = 0; list && at < count; at++)
		list[at] = (struct dsec_bytes){ texts[at], strlen(texts[at]) };
	return list;
}

static void id_take(void *state, const struct dsec_event *event)
{
	if (event->flags & DSEC_LAST)
		*(struct dsec_id *)state = event->subject;
}

static void id_tell(struct session *session, struct dsec_id id)
{
	auto_json json_t *json = json_status(&session->failure); /* none */
	char text[27];

	(void)json_object_set_new(json, "id", json_id(id));
	dsec_id_print(id, text);
	if (!session->options->json)
		(void)printf("%s\n", text); /* told at the end, by main() */
	session_tell(session, json);
}

static int function_register(struct session *session)
{
	const struct options *o = session->options;
	const uint32_t argc = (uint32_t)o->argument_count;
	auto_free struct dsec_bytes *argv = bytes_of((const char *const *)o->arguments, argc);
	auto_free struct dsec_bytes *env = bytes_of(o->env.items, o->env.count);
	const struct dsec_function_opts opts = {
		.size = sizeof(opts),
		.verb = DSEC_FUNCTION_REGISTER,
		.name = o->registers,
		.image = o->image,
		.cwd = o->cwd,
		.user = o->user,
		.argv = argv,
		.argc = argc,
		.env = env,
		.env_count = o->env.count,
		.flags = (o->allow_degraded ? DSEC_FUNCTION_ALLOW_DEGRADED : 0u) |
			 (argc ? 0u : DSEC_FUNCTION_IMAGE_COMMAND),
		.policy = o->policy,
		.isolation = o->isolation == 2 ? DSEC_ISOLATION_DOMAIN : DSEC_ISOLATION_FRESH,
		.memory_bytes = o->memory_bytes,
		.disk_bytes = o->disk_bytes,
		.output_bytes = o->output_limit_bytes,
		.cpu_ms = (uint32_t)o->cpu_ms,
		.wall_ms = (uint32_t)o->wall_ms,
		.pids_max = (uint32_t)o->pids_max,
	};
	struct dsec_call call = session_call(session);
	struct dsec_id id = { 0 };

	if (!argv || !env)
		return session_fail_error(session, -ENOMEM, "call", "no memory");
	if (session_events(session, dsec_function(session->d, &call, &opts), "register", id_take,
			   &id) < 0)
		return EXIT_TROUBLE;
	id_tell(session, id);
	return 0;
}

/* ---- list ---- */

enum { LS_NAME, LS_ID, LS_ISOLATION, LS_CPU, LS_WALL, LS_MEMORY, LS_IMAGE };

static const struct column columns[] = {
	[LS_NAME] = { "NAME", 20 },
	[LS_ID] = { "ID", 27 },
	[LS_ISOLATION] = { "ISOLATION", 10 },
	[LS_CPU] = { "CPU", 7 },
	[LS_WALL] = { "WALL", 7 },
	[LS_MEMORY] = { "MEMORY", 9 },
	[LS_IMAGE] = { "IMAGE", 0 },
	{ NULL, 0 },
};

static const char *isolation_name(uint32_t isolation)
{
	return isolation == DSEC_ISOLATION_DOMAIN ? "domain" : "fresh";
}

static json_t *function_json(const struct dsec_function_row *row)
{
	json_t *object = json_object(), *argv = json_array();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_add_bytes(object, "name", row->name);
	(void)json_object_set_new(object, "id", json_id(row->id));
	(void)json_add_bytes(object, "image", row->image);
	if (row->policy.bytes)
		(void)json_add_bytes(object, "policy", row->policy);
	(void)json_object_set_new(object, "isolation", json_string(isolation_name(row->isolation)));
	(void)json_object_set_new(object, "cpu_ms",
				  row->cpu_ms ? json_integer(row->cpu_ms) : json_null());
	(void)json_object_set_new(object, "wall_ms", json_integer(row->wall_ms));
	(void)json_object_set_new(object, "memory_bytes",
				  row->memory_bytes ? json_amount(row->memory_bytes) : json_null());
	(void)json_object_set_new(object, "disk_bytes", json_amount(row->disk_bytes));
	(void)json_object_set_new(object, "output_bytes", json_amount(row->output_bytes));
	(void)json_object_set_new(object, "pids_max", json_integer(row->pids_max));
	(void)json_object_set_new(object, "unenforced", json_integer(row->unenforced));
	(void)json_object_set_new(object, "age_ms", json_amount(row->age_ms));
	for (uint32_t at = 0; at < row->argc; at++)
		(void)json_array_append_new(argv, json_text(row->argv[at]));
	(void)json_object_set_new(object, "argv", argv);
	return object;
}

static void function_show(const struct dsec_function_row *row)
{
	char text[VALUE_TEXT_BYTES], id[27];

	dsec_id_print(row->id, id);
	table_cell(&columns[LS_NAME], row->name);
	table_text(&columns[LS_ID], id);
	table_text(&columns[LS_ISOLATION], isolation_name(row->isolation));
	value_print_ms(row->cpu_ms ? row->cpu_ms : UINT64_MAX, text);
	table_text(&columns[LS_CPU], text);
	value_print_ms(row->wall_ms, text);
	table_text(&columns[LS_WALL], text);
	value_print_bytes(row->memory_bytes ? row->memory_bytes : UINT64_MAX, text);
	table_text(&columns[LS_MEMORY], text);
	table_cell(&columns[LS_IMAGE], row->image);
	table_end();
}

static void row_json(const void *state)
{
	auto_json json_t *json = function_json(state);

	(void)json_line(stdout, json); /* told at the end, by main() */
}

static void row_show(const void *state, bool name_alone)
{
	const struct dsec_function_row *row = state;

	if (!name_alone) {
		function_show(row);
		return;
	}
	value_write(stdout, row->name);
	(void)putchar('\n');
}

static const struct session_rows telling = { row_json, row_show };

static int64_t function_ask(struct session *session, uint32_t verb, struct dsec_id id)
{
	const struct dsec_function_opts opts = { .size = sizeof(opts), .verb = verb, .id = id };
	struct dsec_call call = session_call(session);

	return dsec_function(session->d, &call, &opts);
}

static int functions_list(struct session *session)
{
	const struct options *options = session->options;
	int64_t ticket = function_ask(session, DSEC_FUNCTION_LIST, (struct dsec_id){ 0 });

	if (!options->json && !options->quiet)
		table_head(options, columns);
	return session_tell_rows(session, ticket, "call --list", &telling) < 0 ? EXIT_TROUBLE : 0;
}

/* ---- by name ---- */

struct search {
	const char *name;
	struct dsec_id id;
};

static void row_match(void *state, const struct dsec_event *event)
{
	struct search *search = state;
	const struct dsec_function_row *row = event->body;

	if (event->kind == DSEC_EV_ROW && row && row->name.bytes == strlen(search->name) &&
	    !memcmp(row->name.data, search->name, row->name.bytes))
		search->id = row->id;
}

/* 0, or -errno after a line on stderr. */
static int function_find(struct session *session, const char *name, struct dsec_id *ret)
{
	int64_t ticket = function_ask(session, DSEC_FUNCTION_LIST, (struct dsec_id){ 0 });
	struct search search = { .name = name };
	char text[160];
	int r;

	r = session_events(session, ticket, "call", row_match, &search);
	if (r < 0)
		return r;
	*ret = search.id;
	if (search.id.hi || search.id.lo)
		return 0;
	(void)snprintf(text, sizeof(text), "no function '%.80s': dsec call --list", name);
	(void)session_fail_error(session, -ENOENT, "function", text);
	return -ENOENT;
}

static int function_remove(struct session *session)
{
	struct dsec_id id;

	if (function_find(session, session->options->removes, &id) < 0)
		return EXIT_TROUBLE;
	if (session_events(session, function_ask(session, DSEC_FUNCTION_REMOVE, id), "remove", NULL,
			   NULL) < 0)
		return EXIT_TROUBLE;
	return session_done(session);
}

/* ---- call ---- */

struct inputs {
	struct dsec_bytes *all;
	struct call_shown *calls;
	uint32_t count;
};

static void inputs_done(struct inputs *inputs)
{
	for (uint32_t at = 0; inputs->all && at < inputs->count; at++)
		free((void *)inputs->all[at].data);
	free(inputs->all);
	free(inputs->calls);
}

/* All of a file, which may be a pipe; -EFBIG: more than a request holds. */
static int file_take(int fd, struct dsec_bytes *ret)
{
	auto_free char *bytes = NULL;
	size_t count = 0;

	for (;;) {
		char *grown = realloc(bytes, count + READ_BYTES);
		ssize_t n;

		if (!grown)
			return -ENOMEM;
		bytes = grown;
		n = read(fd, bytes + count, READ_BYTES);
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		count += (size_t)n;
		if (count > INPUT_BYTES_MAX)
			return -EFBIG;
	}
	*ret = (struct dsec_bytes){ bytes, count };
	bytes = NULL; /* the caller's */
	return 0;
}

static int input_take(struct session *session, const char *path, struct dsec_bytes *ret)
{
	auto_close int own = -1;
	int fd = STDIN_FILENO, r;
	char text[160];

	if (strcmp(path, "-") != 0) {
		fd = own = open(path, O_RDONLY | O_CLOEXEC);
		if (own < 0)
			fd = -1;
	}
	r = fd < 0 ? -errno : file_take(fd, ret);
	if (r == 0)
		return 0;
	(void)snprintf(text, sizeof(text), "--input %.80s: %s", path, strerror(-r)); /* cut */
	(void)session_fail_error(session, r, "input", text);
	return r;
}

static int inputs_take(struct session *session, struct inputs *inputs)
{
	const struct texts *files = &session->options->inputs;
	int r = 0;

	inputs->count = files->count ? files->count : 1;
	inputs->all = calloc(inputs->count, sizeof(*inputs->all));
	inputs->calls = calloc(inputs->count, sizeof(*inputs->calls));
	if (!inputs->all || !inputs->calls)
		return session_fail_error(session, -ENOMEM, "call", "no memory"), -ENOMEM;
	for (uint32_t at = 0; at < inputs->count && r == 0; at++)
		r = input_take(session, files->count ? files->items[at] : "-", &inputs->all[at]);
	return r;
}

static void call_event(void *state, const struct dsec_event *event)
{
	struct inputs *inputs = state;

	if (event->flags & DSEC_LAST && inputs->count > 1)
		return;
	if (event->index < inputs->count)
		call_take(&inputs->calls[event->index], event);
}

static int calls_make(struct session *session, struct inputs *inputs)
{
	struct dsec_call call = session_call(session);
	struct dsec_id id;
	int status = 0;

	if (function_find(session, session->options->arguments[0], &id) < 0 ||
	    inputs_take(session, inputs) < 0)
		return EXIT_TROUBLE;
	/* NULL: what went wrong with one is told with it. */
	if (session_events(session, dsec_invoke(session->d, &call, id, inputs->all, inputs->count),
			   NULL, call_event, inputs) < 0)
		return EXIT_TROUBLE;
	for (uint32_t at = 0; at < inputs->count; at++) {
		int one =
			call_show(session, &inputs->calls[at], inputs->count > 1 ? at : UINT32_MAX);

		status = status ? status : one;
	}
	return status;
}

static int function_call(struct session *session)
{
	struct inputs inputs = { 0 };
	int status = calls_make(session, &inputs);

	inputs_done(&inputs);
	return status;
}

/* ---- the verb ---- */

static bool is_registration(const struct options *o)
{
	return o->image || o->policy || o->isolation || o->cpu_ms || o->wall_ms ||
	       o->memory_bytes || o->disk_bytes || o->pids_max || o->output_limit_bytes ||
	       o->env.count || o->cwd || o->user || o->allow_degraded;
}

static const char *call_wrong(const struct options *o)
{
	const int verbs = (o->registers != NULL) + (o->removes != NULL) + o->list;

	if (verbs > 1)
		return "call: --register, --list and --remove exclude each other";
	if (o->registers && !o->image)
		return "call --register wants --image IMAGE";
	if (!o->registers && is_registration(o))
		return "call: limits and image belong to --register";
	if (verbs && o->inputs.count)
		return "call: --input belongs to a call";
	if ((o->list || o->removes) && o->argument_count)
		return "call: --list and --remove want nothing more";
	if (!verbs && o->argument_count != 1)
		return "call wants one name, or --register, --list or --remove";
	return NULL;
}

int verb_call(const struct options *options)
{
	struct session session = { .options = options };
	const char *wrong = call_wrong(options);
	int status = EXIT_TROUBLE;

	if (wrong)
		status = session_refuse(&session, "%s", wrong);
	else if (session_open(&session, false) < 0)
		status = EXIT_TROUBLE;
	else if (options->registers)
		status = function_register(&session);
	else if (options->list)
		status = functions_list(&session);
	else if (options->removes)
		status = function_remove(&session);
	else
		status = function_call(&session);
	return session_end(&session, status);
}
