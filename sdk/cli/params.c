/*
 * Owns the table of options. Called by main.c. An option that is not in the table for this verb
 * does not exist; a value outside its range is refused, never clamped; what is not given stays
 * zero.
 */
#include "sdk/cli/params.h"

#include <dsec/dsec.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/values.h"

enum param_type {
	PARAM_ON,     /* bool, no value */
	PARAM_TEXT,   /* const char * */
	PARAM_TEXTS,  /* struct texts; may be repeated */
	PARAM_PAIRS,  /* struct texts; each has a '=' after its first character */
	PARAM_NUMBER, /* uint64_t, as all below */
	PARAM_BYTES,
	PARAM_TIME,
	PARAM_CPUS,   /* in thousandths */
	PARAM_RATE,   /* a number, or "unlimited": the most there is */
	PARAM_CHOICE, /* the number of the word in `value`, from 1 */
	PARAM_LATER,  /* promised, and not there yet: refused by name, and in no help */
};

struct param {
	const char *name;
	char letter;
	enum param_type type;
	uint32_t verbs;
	size_t offset;
	uint64_t min, max;
	const char *value, *help;
};

#define FIELD(name) offsetof(struct options, name)
#define MADE	    (VERB_RUN | VERB_CREATE)
#define RAN	    (VERB_RUN | VERB_EXEC)
#define FILES	    (VERB_CP | VERB_LS | VERB_CAT | VERB_FILE)
#define S	    1000ull
#define DAY_MS	    (86400 * S)
#define TTL_MS_MAX  (30 * DAY_MS)

static const struct param params[] = {
	{ "address", 'H', PARAM_TEXT, VERB_ALL, FIELD(address), 0, 0, "ADDRESS",
	  "the engine: unix:/PATH, stream+unix:/PATH, ssh:[USER@]HOST[:PATH], private:" },
	{ "tenant", 0, PARAM_TEXT, VERB_ALL, FIELD(tenant), 0, 0, "NAME",
	  "of a gateway: the tenant it acts for; \"*\": look at all of them" },
	{ "tenant-token-file", 0, PARAM_TEXT, VERB_ALL, FIELD(token_file), 0, 0, "FILE",
	  "the token in it says whose we are" },
	{ "json", 0, PARAM_ON, VERB_ALL, FIELD(json), 0, 0, NULL, "write JSON to stdout" },
	{ "quiet", 'q', PARAM_ON, VERB_ALL, FIELD(quiet), 0, 0, NULL, "no notes; ids alone" },
	{ "no-color", 0, PARAM_ON, VERB_ALL, FIELD(no_color), 0, 0, NULL, "no bold headings" },
	{ "timeout", 0, PARAM_TIME, VERB_ALL, FIELD(timeout_ms), 1, DAY_MS, "TIME",
	  "run, exec: of the program (10m; at most 24h); others: of the request" },
	{ "help", 0, PARAM_ON, VERB_ALL, FIELD(help), 0, 0, NULL, "say this, and end" },
	{ "image", 0, PARAM_TEXT, MADE | VERB_IMAGE, FIELD(image), 0, 0, "IMAGE",
	  "in place of the argument; image build: what it begins with" },
	{ "register", 0, PARAM_TEXT, VERB_CALL, FIELD(registers), 0, 0, "NAME",
	  "make a function of the image and program that follow" },
	{ "image", 0, PARAM_TEXT, VERB_CALL, FIELD(image), 0, 0, "IMAGE", "register: its image" },
	{ "isolation", 0, PARAM_CHOICE, VERB_CALL, FIELD(isolation), 0, 0, "fresh|domain",
	  "register: calls share nothing (fresh), or namespaces that are proven clean" },
	{ "cpu", 0, PARAM_TIME, VERB_CALL, FIELD(cpu_ms), 1, 3600 * S, "TIME",
	  "register: CPU time of a call, with all it starts" },
	{ "wall", 0, PARAM_TIME, VERB_CALL, FIELD(wall_ms), 1, 3600 * S, "TIME",
	  "register: time of a call by the clock" },
	{ "input", 'i', PARAM_TEXTS, VERB_CALL, FIELD(inputs), 0, 0, "FILE",
	  "a call with this as its stdin; may be repeated; -: stdin, the default" },
	{ "list", 0, PARAM_ON, VERB_CALL, FIELD(list), 0, 0, NULL, "the functions there are" },
	{ "remove", 0, PARAM_TEXT, VERB_CALL, FIELD(removes), 0, 0, "NAME",
	  "the function is no more" },
	{ "label", 0, PARAM_PAIRS,
	  MADE | VERB_PS | VERB_RM | VERB_STATS | VERB_CHANGE | VERB_FETCHED | VERB_EVENTS |
		  VERB_TOP,
	  FIELD(labels), 0, 0, "KEY=VALUE", "give, or select by, a label; may be repeated" },
	{ "name", 0, PARAM_TEXT, MADE | VERB_IMAGE, FIELD(name), 0, 0, "NAME",
	  "label name=NAME; image import, pack: what it is called" },
	{ "layer", 0, PARAM_ON, VERB_IMAGE, FIELD(layer), 0, 0, NULL,
	  "import: what lies over other images: whiteouts stay, no /dev is added; pack: alone" },
	{ "flatten", 0, PARAM_ON, VERB_IMAGE, FIELD(flatten), 0, 0, NULL,
	  "pack, build: one layer of all there is, so that what is wiped is in none below" },
	{ "kill", 0, PARAM_ON, VERB_IMAGE, FIELD(kill), 0, 0, NULL,
	  "pack: end all that runs in the sandbox first, instead of holding it still" },
	{ "dry-run", 0, PARAM_ON, VERB_IMAGE, FIELD(dry_run), 0, 0, NULL,
	  "gc: only say what would go" },
	{ "zstd", 0, PARAM_ON, VERB_IMAGE, FIELD(zstd), 0, 0, NULL, "push: packed contents" },
	{ "lazy", 0, PARAM_ON, VERB_IMAGE, FIELD(lazy), 0, 0, NULL,
	  "pull: contents come when they are read; verify: they may be missing" },
	{ "wipe", 0, PARAM_TEXT, VERB_IMAGE, FIELD(wipe), 0, 0, "RULES",
	  "pack, build: left out: rules and /GLOBs with commas, \"all\" (the default), \"none\"" },
	{ "scan", 0, PARAM_TEXTS, VERB_IMAGE, FIELD(scans), 0, 0, "CANARY",
	  "pack, build: refused where this is in it; may be repeated" },
	{ "scan-file", 0, PARAM_TEXT, VERB_IMAGE, FIELD(scan_file), 0, 0, "FILE",
	  "pack, build: the same, one a line" },
	{ "job", 0, PARAM_TEXT,
	  MADE | VERB_PS | VERB_RM | VERB_STATS | VERB_CHANGE | VERB_FETCHED | VERB_EVENTS |
		  VERB_TOP,
	  FIELD(job), 0, 0, "JOB", "give, or select by, the label job=JOB" },
	{ "path", 0, PARAM_TEXT, VERB_FETCHED, FIELD(path), 0, 0, "PATH",
	  "what they were seen to fetch, as git.example/owner/name/@v/list" },
	{ "policy", 0, PARAM_TEXT, MADE | VERB_PHASE | VERB_CALL | VERB_IMAGE, FIELD(policy), 0, 0,
	  "POLICY", "what it may do: a policy's name; see dsec policy ls" },
	{ "effective", 0, PARAM_ON, VERB_POLICY | VERB_CREATE, FIELD(effective), 0, 0, NULL,
	  "each rule, with those of what is extended, and how it is enforced here" },
	{ "version", 0, PARAM_NUMBER, VERB_POLICY, FIELD(policy_version), 1, UINT32_MAX, "N",
	  "load, rm: only if this is the version that is there" },
	{ "version", 0, PARAM_NUMBER, VERB_PHASE, FIELD(policy_version), 1, INT64_MAX, "N",
	  "only if it is in the phase of this version" },
	{ "kill-old", 0, PARAM_ON, VERB_PHASE, FIELD(kill_old), 0, 0, NULL,
	  "end all that runs in it first" },
	{ "cut-flows", 0, PARAM_ON, VERB_PHASE, FIELD(cut_flows), 0, 0, NULL,
	  "cut the connections of what runs on" },
	{ "phase-version", 0, PARAM_NUMBER, VERB_EXEC, FIELD(in_phase), 1, INT64_MAX, "N",
	  "only if the sandbox is in the phase of this version" },
	{ "network", 0, PARAM_CHOICE, MADE | VERB_IMAGE, FIELD(network), 0, 0,
	  "none|private|egress-unpoliced|shared",
	  "shared by default: loopback in a namespace of many; or unix sockets only; a namespace "
	  "of its own; that and a way out without a policy" },
	{ "memory", 'm', PARAM_BYTES, MADE | VERB_CALL, FIELD(memory_bytes), 1 << 20, 1ull << 46,
	  "SIZE", "memory limit" },
	{ "pids", 0, PARAM_NUMBER, MADE | VERB_CALL, FIELD(pids_max), 1, 4 << 20, "N",
	  "processes at once" },
	{ "processes-per-s", 0, PARAM_RATE, MADE, FIELD(processes_per_s), 1, UINT32_MAX, "N",
	  "processes it may make a second, or \"unlimited\"; beyond, it is held back" },
	{ "swap", 0, PARAM_BYTES, MADE, FIELD(swap_bytes), 1, 1ull << 46, "SIZE",
	  "of its memory may be swapped out; else none of limited memory is" },
	{ "cpus", 0, PARAM_CPUS, MADE, FIELD(cpu_permille), 10, 4096000, "N",
	  "CPU time a second: 2, 0.5" },
	{ "cpu-weight", 0, PARAM_NUMBER, MADE, FIELD(cpu_weight), 1, 10000, "N",
	  "its share of contended CPUs; others have 100" },
	{ "sched-idle", 0, PARAM_ON, MADE, FIELD(sched_idle), 0, 0, NULL,
	  "runs only where nobody else wants the CPU" },
	{ "io", 0, PARAM_BYTES, MADE, FIELD(io_bytes_per_s), 4096, 1ull << 46, "SIZE",
	  "bytes a second from the images' disk, and to it" },
	{ "io-weight", 0, PARAM_NUMBER, MADE, FIELD(io_weight), 1, 10000, "N",
	  "its share of a contended disk; others have 100" },
	{ "disk", 0, PARAM_BYTES, MADE | VERB_CALL, FIELD(disk_bytes), 1 << 20, 1ull << 46, "SIZE",
	  "what it may write" },
	{ "inodes", 0, PARAM_NUMBER, MADE, FIELD(inodes), 16, 1ull << 31, "N",
	  "files it may make" },
	{ "hostname", 0, PARAM_TEXT, MADE, FIELD(hostname), 0, 0, "NAME", "its host name" },
	{ "ttl", 0, PARAM_TIME, MADE, FIELD(ttl_ms), S, TTL_MS_MAX, "TIME", "destroyed after" },
	{ "idle-ttl", 0, PARAM_TIME, MADE, FIELD(idle_ttl_ms), S, TTL_MS_MAX, "TIME",
	  "destroyed when nothing was asked of it for" },
	{ "ttl", 0, PARAM_TIME, VERB_CHANGE, FIELD(ttl_ms), 0, TTL_MS_MAX, "TIME",
	  "destroyed after, from now on; 0: the engine's default" },
	{ "idle-ttl", 0, PARAM_TIME, VERB_CHANGE, FIELD(idle_ttl_ms), 0, TTL_MS_MAX, "TIME",
	  "destroyed when nothing was asked of it for; 0: never" },
	{ "on-timeout", 0, PARAM_CHOICE, MADE | VERB_CHANGE, FIELD(on_timeout), 0, 0,
	  "destroy|pause", "what its ttl brings" },
	{ "allow-degraded", 0, PARAM_ON, MADE | VERB_CALL | VERB_PHASE, FIELD(allow_degraded), 0, 0,
	  NULL, "go without limits that this host cannot enforce" },
	{ "fresh-root", 0, PARAM_ON, MADE, FIELD(fresh_root), 0, 0, NULL,
	  "never on a root file system that was used before" },
	{ "count", 0, PARAM_NUMBER, VERB_CREATE, FIELD(count), 1, 1 << 15, "N", "how many" },
	{ "images", 0, PARAM_TEXT, VERB_RUN, FIELD(images), 0, 0, "DIR",
	  "images of an engine started for this: /var/lib/dsec/images" },
	{ "rm", 0, PARAM_ON, VERB_RUN, FIELD(remove), 0, 0, NULL,
	  "destroy the sandbox when the program ended: the default" },
	{ "keep", 0, PARAM_ON, VERB_RUN, FIELD(keep), 0, 0, NULL,
	  "leave it running: dsec exec uses it, dsec rm removes it" },
	{ "env", 'e', PARAM_PAIRS, MADE | VERB_EXEC | VERB_CALL | VERB_IMAGE, FIELD(env), 0, 0,
	  "NAME=VALUE", "environment; may be repeated" },
	{ "env-file", 0, PARAM_TEXTS, MADE | VERB_EXEC, FIELD(env_files), 0, 0, "FILE",
	  "the same from a file, a line each; --env is over it" },
	{ "cp-in", 0, PARAM_TEXTS, MADE | VERB_IMAGE, FIELD(copies), 0, 0, "SOURCE:TARGET",
	  "a file or folder into it first, as cp does; may be repeated" },
	{ "backend", 0, PARAM_TEXT, MADE, FIELD(backend), 0, 0, "BACKEND",
	  "what it is made of: container" },
	{ "entrypoint", 0, PARAM_TEXT, VERB_RUN, FIELD(entrypoint), 0, 0, "PROGRAM",
	  "in place of the image's entrypoint and command" },
	{ "workdir", 'w', PARAM_TEXT, RAN | VERB_CALL, FIELD(cwd), 0, 0, "DIR",
	  "where the program starts" },
	{ "user", 'u', PARAM_TEXT, MADE | VERB_EXEC | VERB_CALL | FILES, FIELD(user), 0, 0, "USER",
	  "name, uid or uid:gid" },
	{ "input", 'i', PARAM_ON, RAN, FIELD(input), 0, 0, NULL, "give it stdin, until its end" },
	{ "detach", 'd', PARAM_ON, VERB_EXEC, FIELD(detach), 0, 0, NULL,
	  "do not wait for its end; writes its number, for attach and logs" },
	{ "idle-timeout", 0, PARAM_TIME, RAN, FIELD(idle_timeout_ms), 1, DAY_MS, "TIME",
	  "end it when it wrote nothing for so long" },
	{ "kill-after", 0, PARAM_TIME, RAN, FIELD(kill_after_ms), 1, 600 * S, "TIME",
	  "after a time-out send SIGTERM, and kill only so long after that" },
	{ "no-stream", 0, PARAM_ON, RAN, FIELD(no_stream), 0, 0, NULL,
	  "its output when it has ended: start and end of it" },
	{ "from", 0, PARAM_NUMBER, VERB_ATTACH | VERB_LOGS, FIELD(from), 0, 0, "N",
	  "of stdout without its first N bytes" },
	{ "follow", 'f', PARAM_ON, VERB_EVENTS | VERB_LOGS, FIELD(follow), 0, 0, NULL,
	  "go on with what comes; events: until interrupted" },
	{ "tail", 0, PARAM_BYTES, VERB_LOGS, FIELD(tail_bytes), 1, 1ull << 46, "SIZE",
	  "only the last so many bytes of each stream, as far as they are kept" },
	{ "from", 0, PARAM_TEXT, VERB_EVENTS, FIELD(from_event), 0, 0, "SEQ|EPOCH.SEQ",
	  "from that event on; else all there are, or with -f from now on" },
	{ "sandbox", 0, PARAM_TEXTS, VERB_EVENTS, FIELD(sandboxes), 0, 0, "ID",
	  "of this one, as ID alone; may be repeated" },
	{ "kind", 0, PARAM_TEXTS, VERB_EVENTS, FIELD(kinds), 0, 0, "KIND",
	  "only these; creating, running, ..., or sandbox, exec, image for all of one" },
	{ "sort", 0, PARAM_CHOICE, VERB_TOP, FIELD(sort), 0, 0, "cpu|memory|execs|age",
	  "which come first: cpu" },
	{ "every", 0, PARAM_TIME, VERB_TOP, FIELD(every_ms), 100, 3600 * S, "TIME",
	  "how often it looks: 1s" },
	{ "for", 0, PARAM_TEXT, VERB_WAIT, FIELD(wait_for), 0, 0, "running|ended|exec:N",
	  "what to wait for: ended" },
	{ "from-stderr", 0, PARAM_NUMBER, VERB_ATTACH | VERB_LOGS, FIELD(from_stderr), 0, 0, "N",
	  "the same of stderr" },
	{ "execs", 0, PARAM_TEXT, VERB_PS, FIELD(execs), 0, 0, "ID",
	  "its programs: those that run, and those that are kept" },
	{ "tty", 't', PARAM_ON, RAN, FIELD(tty), 0, 0, NULL,
	  "on a terminal of its own; with -i what is typed goes there" },
	{ "ulimit", 0, PARAM_PAIRS, RAN, FIELD(ulimits), 0, 0, "NAME=SOFT[:HARD]",
	  "resource limit of the program; may be repeated" },
	{ "signal", 's', PARAM_TEXT, VERB_KILL, FIELD(signal), 0, 0, "SIGNAL",
	  "by name or number: TERM" },
	{ "all", 0, PARAM_ON, VERB_KILL, FIELD(all), 0, 0, NULL,
	  "to every process the program started" },
	{ "terminal", 0, PARAM_ON, VERB_KILL, FIELD(terminal), 0, 0, NULL, "hang its terminal up" },
	{ "output-max", 0, PARAM_BYTES, RAN, FIELD(output_bytes), 1, OUTPUT_BYTES_MAX, "SIZE",
	  "no-stream, and keep so much of stdout and of stderr" },
	{ "output-limit", 0, PARAM_BYTES, MADE | VERB_EXEC | VERB_CALL, FIELD(output_limit_bytes),
	  1, 1ull << 46, "SIZE", "end a program that wrote more, to stdout and stderr together" },
	{ "status-file", 0, PARAM_TEXT, RAN | VERB_CALL, FIELD(status_file), 0, 0, "FILE",
	  "write the result there as JSON" },
	{ "wait", 0, PARAM_TIME, VERB_PORT, FIELD(wait_ms), 1, 600 * S, "TIME",
	  "until something listens there, at most so long" },
	{ "listen", 0, PARAM_TEXT, VERB_PORT, FIELD(listen), 0, 0, "ADDRESS:PORT",
	  "take connections here, and lead them there, until interrupted" },
	{ "revoke", 0, PARAM_ON, VERB_PORT, FIELD(revoke), 0, 0, NULL,
	  "its token opens nothing any more" },
	{ "recursive", 'r', PARAM_ON, VERB_FILE, FIELD(recursive), 0, 0, NULL,
	  "rm: with all that is under it" },
	{ "parents", 'p', PARAM_ON, VERB_FILE, FIELD(parents), 0, 0, NULL,
	  "mkdir: with what is missing above it" },
	{ "phase", 0, PARAM_LATER, MADE, 0, 0, 0, "PHASE", NULL },
	{ "instance", 0, PARAM_TEXT, VERB_CHECK, FIELD(instance), 0, 0, "NAME",
	  "whose residue to look at; else as the address says" },
};

enum { PARAMS = sizeof(params) / sizeof(params[0]) };

static int complain(struct options *options, const char *option, const char *what)
{
	(void)snprintf(options->problem, sizeof(options->problem), "%.80s: %s", option,
		       what); /* cut is fine */
	return -EINVAL;
}

static const struct param *param_named(const char *name, size_t bytes, uint32_t verbs)
{
	for (size_t at = 0; at < PARAMS; at++) {
		const struct param *p = &params[at];

		if (p->verbs & verbs && strlen(p->name) == bytes && !memcmp(p->name, name, bytes))
			return p;
	}
	return NULL;
}

static const struct param *param_lettered(char letter, uint32_t verbs)
{
	for (size_t at = 0; at < PARAMS; at++) {
		if (params[at].letter == letter && params[at].verbs & verbs)
			return &params[at];
	}
	return NULL;
}

int texts_add(struct texts *texts, const char *text)
{
	const char **items = realloc(texts->items, (texts->count + 1) * sizeof(*items));

	if (!items)
		return -ENOMEM;
	items[texts->count++] = text;
	texts->items = items;
	return 0;
}

static int choice_parse(const char *choices, const char *text, uint64_t *ret)
{
	size_t bytes = strlen(text);
	uint64_t number = 1;

	for (const char *at = choices;; at += strcspn(at, "|") + 1, number++) {
		if (strcspn(at, "|") == bytes && !memcmp(at, text, bytes)) {
			*ret = number;
			return 0;
		}
		if (!at[strcspn(at, "|")])
			return -EINVAL;
	}
}

static int amount_parse(const struct param *p, const char *text, uint64_t *ret)
{
	switch (p->type) {
	case PARAM_BYTES:
		return value_parse_bytes(text, ret);
	case PARAM_TIME:
		return value_parse_ms(text, ret);
	case PARAM_CPUS:
		return value_parse_permille(text, ret);
	case PARAM_RATE:
		*ret = UINT32_MAX;
		return strcmp(text, "unlimited") ? value_parse_number(text, ret) : 0;
	case PARAM_CHOICE:
		return choice_parse(p->value, text, ret);
	default:
		return value_parse_number(text, ret);
	}
}

static void amount_print(const struct param *p, uint64_t amount, char *ret_text)
{
	if (p->type == PARAM_BYTES)
		value_print_exact_bytes(amount, ret_text);
	else if (p->type == PARAM_TIME)
		value_print_exact_ms(amount, ret_text);
	else if (p->type == PARAM_CPUS)
		value_print_permille(amount, ret_text);
	else
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64, amount); /* fits */
}

static int value_refuse(const struct param *p, const char *option, const char *text,
			struct options *options)
{
	char what[160];

	(void)snprintf(what, sizeof(what), "'%.40s' is not %s", text, p->value); /* cut */
	return complain(options, option, what);
}

static int amount_set(const struct param *p, const char *option, const char *text,
		      struct options *options)
{
	char what[160], min[VALUE_TEXT_BYTES], max[VALUE_TEXT_BYTES];
	uint64_t amount = 0;
	int r;

	r = amount_parse(p, text, &amount);
	if (r == -EINVAL)
		return value_refuse(p, option, text, options);
	if (r < 0 || (p->max && (amount < p->min || amount > p->max))) {
		amount_print(p, p->min, min);
		amount_print(p, p->max ? p->max : UINT64_MAX, max);
		(void)snprintf(what, sizeof(what), "'%.40s' is not from %s to %s", text, min,
			       max); /* cut */
		return complain(options, option, what);
	}
	*(uint64_t *)((char *)options + p->offset) = amount;
	options->has_ttl |= p->offset == FIELD(ttl_ms);
	options->has_idle_ttl |= p->offset == FIELD(idle_ttl_ms);
	return 0;
}

static int param_set(const struct param *p, const char *option, const char *text,
		     struct options *options)
{
	void *field = (char *)options + p->offset;

	switch (p->type) {
	case PARAM_ON:
		*(bool *)field = true;
		return 0;
	case PARAM_TEXT:
		if (!*text)
			return complain(options, option, "is empty");
		*(const char **)field = text;
		return 0;
	case PARAM_PAIRS:
		if (*text == '=' || !strchr(text, '='))
			return value_refuse(p, option, text, options);
		return texts_add(field, text);
	case PARAM_TEXTS:
		return texts_add(field, text);
	case PARAM_LATER:
		return complain(options, option, "is not there yet");
	case PARAM_NUMBER:
	case PARAM_BYTES:
	case PARAM_TIME:
	case PARAM_CPUS:
	case PARAM_RATE:
	case PARAM_CHOICE:
		break;
	}
	return amount_set(p, option, text, options);
}

/* "--name", "--name=value", "--name value". How many arguments it took. */
static int long_parse(int argc, char **argv, uint32_t verbs, struct options *options)
{
	size_t bytes = strcspn(argv[0] + 2, "=");
	const struct param *p = param_named(argv[0] + 2, bytes, verbs);
	const char *text = argv[0][2 + bytes] ? argv[0] + 3 + bytes : NULL;
	int used = 1, r;

	if (!p)
		return complain(options, argv[0], "no such option here");
	if (p->type == PARAM_ON && text)
		return complain(options, argv[0], "takes no value");
	if (p->type != PARAM_ON && !text) {
		if (argc < 2)
			return complain(options, argv[0], "wants a value");
		text = argv[1];
		used = 2;
	}
	r = param_set(p, argv[0], text, options);
	return r < 0 ? r : used;
}

/* "-q", "-qi", "-m 256M", "-m256M". */
static int short_parse(int argc, char **argv, uint32_t verbs, struct options *options)
{
	for (const char *at = argv[0] + 1; *at; at++) {
		const struct param *p = param_lettered(*at, verbs);
		int r;

		if (!p)
			return complain(options, argv[0], "no such option here");
		if (p->type != PARAM_ON) {
			if (!at[1] && argc < 2)
				return complain(options, argv[0], "wants a value");
			r = param_set(p, argv[0], at[1] ? at + 1 : argv[1], options);
			return r < 0 ? r : at[1] ? 1 : 2;
		}
		r = param_set(p, argv[0], NULL, options);
		if (r < 0)
			return r;
	}
	return 1;
}

static bool is_option(const char *argument)
{
	return argument[0] == '-' && argument[1];
}

static int option_parse(int argc, char **argv, uint32_t verbs, struct options *options)
{
	if (argv[0][1] == '-')
		return long_parse(argc, argv, verbs, options);
	return short_parse(argc, argv, verbs, options);
}

/* What stands before the verb means the same for each, so any verb's table would do. */
static bool is_global(const struct param *p)
{
	return p->verbs == VERB_ALL;
}

int params_parse_global(int argc, char **argv, struct options *options)
{
	int at = 0;

	while (at < argc && is_option(argv[at])) {
		const char *argument = argv[at];
		const struct param *p =
			argument[1] == '-' ?
				param_named(argument + 2, strcspn(argument + 2, "="), VERB_ALL) :
				param_lettered(argument[1], VERB_ALL);
		int used;

		if (p && !is_global(p))
			return complain(options, argument, "belongs after the verb");
		used = option_parse(argc - at, argv + at, VERB_ALL, options);
		if (used < 0)
			return used;
		at += used;
	}
	return at;
}

static int leading_of(enum verb verb, const struct options *options)
{
	if (verb == VERB_RUN)
		return options->image ? 0 : 1;
	if (verb == VERB_IMAGE)
		return options->argument_count && !strcmp(*options->arguments, "build") ? 2 : -1;
	return verb == VERB_EXEC ? 1 : -1;
}

int params_parse(int argc, char **argv, enum verb verb, struct options *options)
{
	int at = 0, used, leading;

	options->arguments = argv;
	options->argument_count = 0;
	while (at < argc) {
		leading = leading_of(verb, options);
		if (!strcmp(argv[at], "--")) {
			at++;
			break;
		}
		if (!is_option(argv[at])) {
			if (leading >= 0 && options->argument_count >= leading)
				break;
			options->arguments[options->argument_count++] = argv[at++];
			continue;
		}
		used = option_parse(argc - at, argv + at, verb, options);
		if (used < 0)
			return used;
		at += used;
	}
	if (leading_of(verb, options) >= 0) {
		options->command = argv + at;
		options->command_count = argc - at;
	} else {
		while (at < argc)
			options->arguments[options->argument_count++] = argv[at++];
	}
	return 0;
}

void params_help(FILE *file, uint32_t verb)
{
	for (size_t at = 0; at < PARAMS; at++) {
		const struct param *p = &params[at];
		char name[64], letter[8] = "    ";

		if (p->type == PARAM_LATER ||
		    (verb ? !(p->verbs & verb) || is_global(p) : !is_global(p)))
			continue;
		if (p->letter)
			(void)snprintf(letter, sizeof(letter), "-%c, ", p->letter); /* fits */
		(void)snprintf(name, sizeof(name), "--%s %s", p->name, p->value ? p->value : "");
		(void)fprintf(file, "  %s%-26s %s\n", letter, name, p->help);
	}
}

/* Of a verb, or before it. */
static bool is_of(const struct param *p, uint32_t verb)
{
	return verb == PARAMS_GLOBAL ? is_global(p) : (p->verbs & verb) != 0;
}

/* As short_parse() reads it: the first letter that takes a value has the rest. */
static const struct param *value_lettered(const char *word, uint32_t verbs, const char **ret_text)
{
	for (const char *at = word + 1; *at; at++) {
		const struct param *p = param_lettered(*at, verbs);

		*ret_text = at[1] ? at + 1 : NULL;
		if (!p || p->type != PARAM_ON)
			return p;
	}
	return NULL;
}

bool params_value(const char *word, uint32_t verb, struct param_value *ret)
{
	uint32_t verbs = verb == PARAMS_GLOBAL ? VERB_ALL : verb;
	const char *text = strchr(word, '=');
	const struct param *p;

	if (word[1] == '-') {
		p = param_named(word + 2, strcspn(word + 2, "="), verbs);
		text = text ? text + 1 : NULL;
	} else {
		p = value_lettered(word, verbs, &text);
	}
	if (!p || p->type == PARAM_ON || !is_of(p, verb))
		return false;
	*ret = (struct param_value){ .text = text,
				     .kind = p->value,
				     .is_choice = p->type == PARAM_CHOICE,
				     .is_address = p->offset == FIELD(address) };
	return true;
}

void params_names(uint32_t verb, void (*found)(void *state, const char *name), void *state)
{
	for (size_t at = 0; at < PARAMS; at++) {
		if (is_of(&params[at], verb) && params[at].type != PARAM_LATER)
			found(state, params[at].name);
	}
}

void params_done(struct options *options)
{
	free(options->scans.items);
	free(options->labels.items);
	free(options->env.items);
	free(options->env_files.items);
	for (uint32_t at = 0; at < options->env_texts.count; at++)
		free((char *)(uintptr_t)options->env_texts.items[at]); /* they are ours */
	free(options->env_texts.items);
	free(options->copies.items);
	free(options->ulimits.items);
	free(options->kinds.items);
	free(options->sandboxes.items);
}
