/*
 * `dsec completion`: the scripts for shells, and the answers they ask for. Called by main.c. Verbs
 * and options come from their tables, ids, labels and images from the engine. Must hold: an answer
 * comes soon, whatever the engine does, and is of characters that mean nothing to a shell: what
 * others called their images must not become a command of ours.
 */
#include "sdk/cli/completion.h"

#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/commands.h"
#include "sdk/cli/select.h"
#include "sdk/cli/session.h"

enum { ENGINE_MS = 500, ROWS_MAX = 1000, ID_CHARACTERS = 26, KIND_BYTES = 64 };

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/* What is asked: the line as far as it was understood. */
struct line {
	struct options options; /* of the line: where the engine is */
	struct session session;
	const struct command *command;
	const char *first; /* argument; NULL: none yet */
	int arguments;
	bool is_program; /* from here on the words are a program's */
	const char *word;
	size_t value_at; /* of the word: what stands before is an option's name */
	bool files;
};

/* ---- candidates ---- */

/* One more candidate: `before`, the text and `after`, if the word may become that. */
static void offer(const struct line *line, const char *before, struct dsec_bytes text,
		  const char *after)
{
	auto_free char *whole = NULL;

	if (asprintf(&whole, "%.*s%s%.*s%s", (int)line->value_at, line->word, before,
		     (int)text.bytes, (const char *)text.data, after) < 0) {
		whole = NULL;
		return;
	}
	if (strncmp(whole, line->word, strlen(line->word)) != 0 || *whole == '\0')
		return;
	for (const char *at = whole; *at; at++) {
		if (!strchr(letters, *at) && !strchr("._+@:/=,%-", *at))
			return;
	}
	(void)puts(whole); /* told at the end, by main() */
}

static void offer_text(const struct line *line, const char *text, size_t bytes)
{
	offer(line, "", (struct dsec_bytes){ text, bytes }, "");
}

/* "one|two|three" */
static void offer_choices(const struct line *line, const char *choices)
{
	while (*choices) {
		size_t bytes = strcspn(choices, "|");

		offer_text(line, choices, bytes);
		choices += bytes + (choices[bytes] == '|');
	}
}

/* ---- what the engine knows ---- */

struct offering {
	const struct line *line;
	const char *after;
	bool labels; /* not ids */
};

static bool is_name(const struct dsec_label *label)
{
	return label->key.bytes == 4 && !memcmp(label->key.data, "name", 4);
}

static void label_offer(const struct line *line, const struct dsec_label *label)
{
	auto_free char *key = strndup(label->key.data, label->key.bytes);

	if (!key)
		return;
	key = realloc(key, label->key.bytes + 2);
	if (!key)
		return;
	(void)strcat(key, "="); /* it fits */
	offer(line, key, label->value, "");
}

static void sandbox_offer(void *state, const struct dsec_event *event)
{
	const struct offering *offering = state;
	const struct dsec_row *row = event->body;
	char id[ID_CHARACTERS + 1];

	if (event->kind != DSEC_EV_ROW || !row)
		return;
	dsec_id_print(row->id, id);
	if (!offering->labels)
		offer(offering->line, id, (struct dsec_bytes){ "", 0 }, offering->after);
	for (uint32_t at = 0; at < row->label_count; at++) {
		if (offering->labels)
			label_offer(offering->line, &row->labels[at]);
		else if (is_name(&row->labels[at]))
			offer(offering->line, "name:", row->labels[at].value, offering->after);
	}
}

static void exec_offer(void *state, const struct dsec_event *event)
{
	const struct dsec_exec_row *row = event->body;
	const struct offering *offering = state;
	char number[24];

	if (event->kind != DSEC_EV_ROW || !row)
		return;
	(void)snprintf(number, sizeof(number), "%llu", (unsigned long long)row->exec); /* fits */
	offer_text(offering->line, number, strlen(number));
}

static void image_offer(void *state, const struct dsec_event *event)
{
	const struct dsec_image_row *row = event->body;
	const struct offering *offering = state;

	if (event->kind == DSEC_EV_ROW && row)
		offer(offering->line, "", row->name, "");
}

static void policy_offer(void *state, const struct dsec_event *event)
{
	const struct dsec_policy_row *row = event->body;
	const struct offering *offering = state;

	if (event->kind == DSEC_EV_ROW && row)
		offer(offering->line, "", row->name, "");
}

/* Without an engine there is nothing to offer, and nobody to tell. */
static bool engine_reach(struct line *line)
{
	struct dsec_open_opts opts = {
		.size = sizeof(opts),
		.address = line->options.address,
		.connect_ms = ENGINE_MS,
		.reconnect_ms = UINT32_MAX,
	};
	bool named;

	if (line->session.d)
		return true;
	line->options.timeout_ms = ENGINE_MS;
	line->session.options = &line->options;
	return !address_is_private(&line->options) &&
	       session_connect(&line->session, &opts, &named) == 0;
}

static void offer_sandboxes(struct line *line, bool labels, const char *after)
{
	struct dsec_list_opts opts = { .size = sizeof(opts), .limit = ROWS_MAX };
	struct offering offering = { .line = line, .after = after, .labels = labels };
	struct dsec_call call;

	if (!engine_reach(line))
		return;
	call = session_call(&line->session);
	(void)session_events(&line->session, dsec_list(line->session.d, &call, &opts), NULL,
			     sandbox_offer, &offering); /* as above */
}

static void offer_execs(struct line *line)
{
	struct dsec_list_opts opts = { .size = sizeof(opts), .what = DSEC_LIST_EXECS };
	struct offering offering = { .line = line };
	struct dsec_call call;

	if (!engine_reach(line) || select_one(&line->session, line->first, &opts.sandbox) < 0)
		return;
	call = session_call(&line->session);
	(void)session_events(&line->session, dsec_list(line->session.d, &call, &opts), NULL,
			     exec_offer, &offering); /* as above */
}

static void offer_images(struct line *line)
{
	struct dsec_image_opts opts = { .size = sizeof(opts), .verb = DSEC_IMAGE_LIST };
	struct offering offering = { .line = line };
	struct dsec_call call;

	if (!engine_reach(line))
		return;
	call = session_call(&line->session);
	(void)session_events(&line->session, dsec_image(line->session.d, &call, &opts), NULL,
			     image_offer, &offering); /* as above */
}

static void offer_policies(struct line *line)
{
	struct dsec_policy_opts opts = { .size = sizeof(opts), .verb = DSEC_POLICY_LIST };
	struct offering offering = { .line = line };
	struct dsec_call call;

	if (!engine_reach(line))
		return;
	call = session_call(&line->session);
	(void)session_events(&line->session, dsec_policy(line->session.d, &call, &opts), NULL,
			     policy_offer, &offering); /* as above */
}

/* As the tables name what is wanted. */
static void offer_kind(struct line *line, const char *kind)
{
	if (!strcmp(kind, "ID"))
		offer_sandboxes(line, false, "");
	else if (!strcmp(kind, "ID:"))
		offer_sandboxes(line, false, ":");
	else if (!strcmp(kind, "EXEC"))
		offer_execs(line);
	else if (!strcmp(kind, "IMAGE"))
		offer_images(line);
	else if (!strcmp(kind, "POLICY"))
		offer_policies(line);
	else if (!strcmp(kind, "KEY=VALUE"))
		offer_sandboxes(line, true, "");
	else if (!strcmp(kind, "ADDRESS"))
		offer_choices(line, "unix:|stream+unix:|ssh:|private:");
	line->files = !strcmp(kind, "ID:") || !strcmp(kind, "FILE") || !strcmp(kind, "DIR");
}

/* ---- the line ---- */

/* The alternative of command->takes that the first argument chose, without that word. */
static const char *kinds_of(const struct line *line)
{
	const char *takes = line->command->takes ? line->command->takes : "";

	if (!strchr(takes, '|'))
		return takes;
	while (line->first && *takes) {
		size_t bytes = strcspn(takes, " |");

		if (strlen(line->first) == bytes && !memcmp(takes, line->first, bytes))
			return takes + bytes + (takes[bytes] == ' ');
		takes += strcspn(takes, "|");
		takes += *takes == '|';
	}
	return "";
}

/* The first words of all alternatives. */
static void offer_alternatives(const struct line *line)
{
	for (const char *takes = line->command->takes; *takes;) {
		offer_text(line, takes, strcspn(takes, " |"));
		takes += strcspn(takes, "|");
		takes += *takes == '|';
	}
}

/* The argument number `at` of those kinds, up to '|'. False: there are not so many. */
static bool kind_find(const char *kinds, int at, char ret[KIND_BYTES])
{
	const char *end = kinds + strcspn(kinds, "|");

	while (kinds < end) {
		size_t bytes = strcspn(kinds, " |");
		bool repeats = bytes > 3 && !memcmp(kinds + bytes - 3, "...", 3);

		if (at == 0 || repeats) {
			(void)snprintf(ret, KIND_BYTES, "%.*s", (int)(repeats ? bytes - 3 : bytes),
				       kinds); /* fits */
			return true;
		}
		at--;
		kinds += bytes + (kinds[bytes] == ' ');
	}
	return false;
}

static void offer_argument(struct line *line)
{
	const bool chooses = line->command->takes && strchr(line->command->takes, '|');
	char kind[KIND_BYTES];

	if (chooses && !line->arguments)
		offer_alternatives(line);
	else if (kind_find(kinds_of(line), line->arguments - chooses, kind))
		offer_kind(line, kind);
	else
		line->files = true;
}

static uint32_t verbs_of(const struct line *line)
{
	return line->command ? line->command->verb : PARAMS_GLOBAL;
}

static void option_offer(void *state, const char *name)
{
	offer(state, "--", (struct dsec_bytes){ name, strlen(name) }, "");
}

/* A word before the last. True: the next one is the value of this. */
static bool word_read(struct line *line, const char *word, struct param_value *ret)
{
	char kind[KIND_BYTES];

	if (!strcmp(word, "--")) {
		line->is_program = true;
		return false;
	}
	if (word[0] == '-' && word[1])
		return params_value(word, verbs_of(line), ret) && !ret->text;
	if (!line->command) {
		line->command = command_find(word);
		line->is_program = !line->command; /* nothing is known of that */
		return false;
	}
	if (!line->arguments)
		line->first = word;
	line->arguments++;
	line->is_program |= line->command->takes && !strchr(line->command->takes, '|') &&
			    !kind_find(line->command->takes, line->arguments - 1, kind);
	return false;
}

static void answer(struct line *line, const char *const *words, int count)
{
	struct param_value value = { 0 };
	bool is_value = false;

	for (int at = 0; at < count - 1 && !line->is_program; at++) {
		if (is_value) {
			is_value = false;
			if (value.is_address)
				line->options.address = words[at];
			continue;
		}
		is_value = word_read(line, words[at], &value);
		if (value.is_address && value.text)
			line->options.address = value.text;
		value.text = NULL;
	}
	line->word = count ? words[count - 1] : "";
	if (!is_value && line->word[0] == '-' && !line->is_program)
		is_value = params_value(line->word, verbs_of(line), &value) && value.text;
	if (is_value && value.text)
		line->value_at = (size_t)(value.text - line->word);
	if (line->is_program)
		line->files = true;
	else if (is_value && value.is_choice)
		offer_choices(line, value.kind);
	else if (is_value)
		offer_kind(line, value.kind);
	else if (line->word[0] == '-')
		params_names(verbs_of(line), option_offer, line);
	else if (line->command)
		offer_argument(line);
	else
		for (const struct command *c = command_next(NULL); c; c = command_next(c))
			offer_text(line, c->name, strlen(c->name));
}

static int script_write(struct session *session, const char *shell)
{
	const char *script = completion_script(shell);

	if (!script)
		return session_refuse(session, "completion: for bash and zsh, not for %s", shell);
	if (session_refuse_json(session, "a script"))
		return EXIT_TROUBLE;
	(void)fputs(script, stdout); /* told at the end, by main() */
	return 0;
}

int verb_completion(const struct options *options)
{
	struct session session = { .options = options };
	struct line line = { 0 };
	int status;

	if (options->argument_count == 1 && strcmp(options->arguments[0], "answer") != 0)
		status = script_write(&session, options->arguments[0]);
	else if (options->argument_count < 1 || strcmp(options->arguments[0], "answer") != 0)
		status = session_refuse(&session, "completion wants the name of a shell");
	else {
		answer(&line, (const char *const *)options->arguments + 1,
		       options->argument_count - 1);
		(void)puts(line.files ? "files" : "words"); /* as above */
		dsec_close(line.session.d);
		return 0;
	}
	return session_end(&session, status);
}
