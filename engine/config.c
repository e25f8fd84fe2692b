/*
 * Owns the table of dsecd's options: name, type, unit, range and help of each stand in one line of
 * it, and parsing, defaults in `--help` and "was it given" are read from it. Called by main.c and
 * the keeper before anything else runs. An option that is not in the table does not exist; a value
 * outside its range is refused, never clamped.
 */
#include "engine/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "dsec/ring.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config_tenant.h"

enum option_type {
	OPTION_NAME,	/* an instance's */
	OPTION_PATH,	/* const char * */
	OPTION_COUNT,	/* uint32_t */
	OPTION_BYTES,	/* uint64_t, suffix K M G T */
	OPTION_LARGE,	/* uint64_t without a unit */
	OPTION_SECONDS, /* uint32_t, suffix s m h d */
	OPTION_MODE,	/* uint32_t, octal */
	OPTION_WORD,	/* uint32_t, one of VALUE's words: the first is `min` */
	OPTION_FD,	/* int, an open descriptor */
	OPTION_ON,	/* bool, no value */
	OPTION_OFF,	/* bool, no value */
	OPTION_TENANT,	/* may be repeated, see config_tenant.c */
	OPTION_ANSWER,	/* no value, not "run": `max` is an enum config_mode */
};

struct option {
	const char *name;
	enum option_type type;
	size_t offset;
	uint64_t min, max;
	const char *value, *help;
};

#define FIELD(name) offsetof(struct config, name)

static const struct option options[] = {
	{ "instance", OPTION_NAME, FIELD(instance), 0, 0, "NAME",
	  "names the cgroup root, lock and socket: [a-z0-9-]{1,24}" },
	{ "socket", OPTION_PATH, FIELD(socket_path), 0, 0, "PATH",
	  "where clients connect; /run/dsec/NAME.sock for other instances" },
	{ "socket-mode", OPTION_MODE, FIELD(socket_mode), 0, 0777, "OCTAL", "the socket's mode" },
	{ "token-file", OPTION_PATH, FIELD(token_path), 0, 0, "PATH",
	  "clients must show what is in it; none: the socket's mode alone decides" },
	{ "tenant", OPTION_TENANT, 0, 0, 0, "KEY=VALUE,...",
	  "one more tenant, see dsecd(8): name, socket, mode, token-file, uid, gateway, builder, "
	  "limits" },
	{ "network", OPTION_WORD, FIELD(network), CONFIG_NETWORK_NONE, 0, "none|shared",
	  "of sandboxes whose creates name none; by default shared, or none where it cannot be" },
	{ "shared-scope", OPTION_WORD, FIELD(shared_scope), DSEC_NETWORK_SCOPE_JOB, 0,
	  "job|tenant|node", "whose sandboxes are in one namespace of network shared" },
	{ "egress", OPTION_PATH, FIELD(egress_range), 0, 0, "RANGE",
	  "sandboxes may have a way out, of addresses of this range: 10.200.0.0/16" },
	{ "egress6", OPTION_PATH, FIELD(egress6_range), 0, 0, "RANGE",
	  "by IPv6, too, with --egress: of addresses of this range, fd00:d5ec::/64" },
	{ "dns-upstream", OPTION_PATH, FIELD(dns_upstream), 0, 0, "ADDR[:PORT]",
	  "who is asked for names that policies allow; the host's resolv.conf says, by default" },
	{ "services", OPTION_PATH, FIELD(services_path), 0, 0, "DIR",
	  "named services for policies: *.yaml, see docs/services.md" },
	{ "images", OPTION_PATH, FIELD(images_path), 0, 0, "DIR", "the images: NAME.erofs" },
	{ "state", OPTION_PATH, FIELD(state_path), 0, 0, "DIR",
	  "what instances keep over their ends: policies that tenants loaded" },
	{ "images-full", OPTION_COUNT, FIELD(images_full_percent), 1, 100, "PERCENT",
	  "of their disk: nothing is imported beyond" },
	{ "image-max", OPTION_BYTES, FIELD(image_bytes_max), 1 << 20, 1ull << 46, "BYTES",
	  "contents of an image that is imported" },
	{ "compose-timeout", OPTION_SECONDS, FIELD(compose_timeout_s), 1, 86400, "TIME",
	  "until a composition that a sandbox waits for has failed" },
	{ "remote", OPTION_PATH, FIELD(remote_address), 0, 0, "ADDRESS",
	  "where contents of images are that are not here: dir:PATH, http://... or https://..." },
	{ "image-cache", OPTION_BYTES, FIELD(image_cache_bytes), 1 << 20, 1ull << 50, "BYTES",
	  "on the images' disk, of what was fetched from --remote" },
	{ "remote-timeout", OPTION_SECONDS, FIELD(remote_timeout_s), 1, 3600, "TIME",
	  "until a read of a remote has failed, whatever hangs" },
	{ "remote-header-file", OPTION_PATH, FIELD(remote_header_path), 0, 0, "PATH",
	  "\"Name: value\" lines that an HTTP remote is asked with: credentials" },
	{ "remote-ca-file", OPTION_PATH, FIELD(remote_ca_path), 0, 0, "PATH",
	  "certificates of who may sign an HTTPS remote's; the host's, by default" },
	{ "launcher", OPTION_PATH, FIELD(launcher_path), 0, 0, "PATH", "the launcher's program" },
	{ "importer", OPTION_PATH, FIELD(import_path), 0, 0, "PATH", "the importer's program" },
	{ "store-program", OPTION_PATH, FIELD(store_path), 0, 0, "PATH",
	  "the program of the store of images" },
	{ "fetch-program", OPTION_PATH, FIELD(fetch_path), 0, 0, "PATH",
	  "the program that reads servers for pulls" },
	{ "shards", OPTION_COUNT, FIELD(shards), 1, SHARDS_MAX, "N", "threads, one per CPU" },
	{ "launchers", OPTION_COUNT, FIELD(launchers), 1, LAUNCHERS_PER_SHARD_MAX, "N",
	  "launcher processes per shard" },
	{ "sandboxes-max", OPTION_COUNT, FIELD(sandboxes_max), 1, SLOTS_PER_INSTANCE, "N",
	  "sandboxes alive at once" },
	{ "execs-max", OPTION_COUNT, FIELD(execs_max), 1, 65536, "N", "commands running at once" },
	{ "client-execs-max", OPTION_COUNT, FIELD(client_execs_max), 0, 65536, "N",
	  "of them of one connection; 0: three quarters" },
	{ "creates-per-s", OPTION_COUNT, FIELD(creates_per_s), 0, 1000000, "N",
	  "sandboxes made a second, with a burst of as many; 0: no limit" },
	{ "inbounds-max", OPTION_COUNT, FIELD(inbounds_max), 1, 4096, "N",
	  "connections to ports of sandboxes at once, per shard" },
	{ "clients-max", OPTION_COUNT, FIELD(clients_max), 1, 16384, "N", "connections at once" },
	{ "requests-max", OPTION_COUNT, FIELD(requests_max), 1, 4096, "N",
	  "requests in flight per channel, for who asks; others have 64" },
	{ "creates-waiting-max", OPTION_COUNT, FIELD(creates_waiting_max), 1, CREATE_COUNT_MAX, "N",
	  "creations admitted but not started, per shard" },
	{ "slot-uses-max", OPTION_COUNT, FIELD(slot_uses_max), 1, 1000000, "N",
	  "sandboxes on one untouched root before it is remade anyway" },
	{ "ttl", OPTION_SECONDS, FIELD(ttl_default_s), 1, TTL_S_MAX, "TIME",
	  "a sandbox's life when its request names none" },
	{ "disk", OPTION_BYTES, FIELD(disk_bytes), 1 << 20, 1ull << 40, "BYTES",
	  "what a sandbox may write, by default" },
	{ "inodes", OPTION_LARGE, FIELD(disk_inodes), 64, 1ull << 31, "N",
	  "files it may make, by default" },
	{ "memory", OPTION_BYTES, FIELD(memory_bytes), 0, 1ull << 46, "BYTES",
	  "its memory limit by default, where enforceable; 0: none" },
	{ "pids", OPTION_COUNT, FIELD(pids_max), 8, 4 << 20, "N", "its processes, by default" },
	{ "journal", OPTION_BYTES, FIELD(journal_bytes), 64 << 10, 1ull << 32, "BYTES",
	  "of the past that a subscription to events may begin with" },
	{ "ready-fd", OPTION_FD, FIELD(ready_fd), 0, INT_MAX, "FD",
	  "\"ready\" and a newline are written here when clients can connect" },
	{ "lifeline", OPTION_FD, FIELD(lifeline_fd), 0, INT_MAX, "FD",
	  "its end of file ends the engine" },
	{ "stop-timeout", OPTION_SECONDS, FIELD(stop_timeout_s), 1, 3600, "TIME",
	  "from SIGTERM to SIGKILL of an engine that does not end" },
	{ "slice", OPTION_COUNT, FIELD(slice_us), 0, 100000, "US",
	  "the time slice of the engine and all in its sandboxes; 0: the kernel's" },
	{ "realtime", OPTION_COUNT, FIELD(realtime_percent), 0, 80, "PERCENT",
	  "of its CPU that a shard may use and be a realtime thread; 0: none is one" },
	{ "cpu-burst", OPTION_COUNT, FIELD(cpu_burst_ms), 0, 60000, "MS",
	  "of CPU time at once, beyond which a program yields to others; 0: none does" },
	{ "fork-bomb", OPTION_COUNT, FIELD(fork_bomb_s), 0, 86400, "S",
	  "until who does little but fail to fork is killed; 0: never; with --cpu-burst" },
	{ "processes-per-s", OPTION_COUNT, FIELD(processes_per_s), 0, 1000000, "N",
	  "processes and threads it may make a second, by default; 0: as many as it likes" },
	{ "no-pin", OPTION_OFF, FIELD(pin_shards), 0, 0, NULL, "do not pin shards to CPUs" },
	{ "log-level", OPTION_WORD, FIELD(log_level), 0, 0, "error|warning|info|debug",
	  "what is logged" },
	{ "check", OPTION_ANSWER, 0, 0, CONFIG_CHECK, NULL, "say what this host can do, and end" },
	{ "json", OPTION_ON, FIELD(check_json), 0, 0, NULL, "--check writes JSON" },
	{ "help", OPTION_ANSWER, 0, 0, CONFIG_HELP, NULL, "say this, and end" },
	{ "uninstall", OPTION_ANSWER, 0, 0, CONFIG_UNINSTALL, NULL,
	  "remove what a dead engine of the instance left, and what it kept, and end" },
	{ "all", OPTION_ON, FIELD(uninstall_all), 0, 0, NULL,
	  "--uninstall removes that of every instance" },
	{ "version", OPTION_ANSWER, 0, 0, CONFIG_VERSION, NULL, "say the version, and end" },
};

enum { OPTIONS = sizeof(options) / sizeof(options[0]), NAME_BYTES_MAX = 24 };
_Static_assert(OPTIONS <= 64, "config.given has a bit for each");
_Static_assert((int)NAME_BYTES_MAX < (int)INSTANCE_BYTES_MAX, "an instance's name fits");

static int program_default(const char *name, char **ret_path);
static int paths_complete(struct config *config);
static const struct option *option_find(const char *name, size_t bytes);
static int option_set(struct config *config, const struct option *o, const char *value);
static void option_print(const struct config *config, const struct option *o, FILE *to);

int config_default(struct config *config)
{
	cpu_set_t cpus;
	uint32_t shards = 1;
	int r;

	/* More CPUs than cpu_set_t holds: the call fails, and SHARDS_MAX is less anyway. */
	if (!sched_getaffinity(0, sizeof(cpus), &cpus))
		shards = (uint32_t)CPU_COUNT(&cpus);
	else if (errno == EINVAL)
		shards = SHARDS_MAX;
	*config = (struct config){
		.instance = "main",
		.images_path = "/var/lib/dsec/images",
		.state_path = "/var/lib/dsec/state",
		.shards = shards < SHARDS_MAX ? shards : SHARDS_MAX,
		.launchers = 3,
		.sandboxes_max = 8192,
		.execs_max = 2048,
		.inbounds_max = 256,
		.clients_max = 256,
		.requests_max = 512,
		.creates_waiting_max = 4096,
		.slot_uses_max = 1000,
		.ttl_default_s = 86400,
		.image_bytes_max = 64ull << 30,
		.images_full_percent = 90,
		.compose_timeout_s = 120,
		.image_cache_bytes = 20ull << 30,
		.remote_timeout_s = 30,
		.disk_bytes = 1 << 30,
		.disk_inodes = 262144,
		.pids_max = 1024,
		.journal_bytes = 4 << 20,
		.ready_fd = -1,
		.lifeline_fd = -1,
		.pin_shards = true,
		.stop_timeout_s = 30,
		.slice_us = 100,
		.realtime_percent = 15,
		.cpu_burst_ms = 50,
		.fork_bomb_s = 10,
		.processes_per_s = 5000,
		.socket_mode = 0600,
		.tenants = { { .name = "default" } },
		.tenant_count = 1,
		.log_level = LOG_INFO,
		.shared_scope = DSEC_NETWORK_SCOPE_JOB,
	};
#ifdef DSEC_FAULTS
	config->fault = getenv("DSEC_FAULT");
#endif
	r = program_default("dsec-launcher", &config->owned_launcher);
	if (r >= 0)
		r = program_default("dsec-import", &config->owned_import);
	if (r >= 0)
		r = program_default("dsec-store", &config->owned_store);
	if (r >= 0)
		r = program_default("dsec-fetch", &config->owned_fetch);
	config->launcher_path = config->owned_launcher;
	config->store_path = config->owned_store;
	config->fetch_path = config->owned_fetch;
	config->import_path = config->owned_import;
	if (r >= 0)
		r = paths_complete(config);
	if (r < 0)
		config_done(config);
	return r;
}

void config_done(struct config *config)
{
	free(config->owned_socket);
	free(config->owned_launcher);
	free(config->owned_import);
	free(config->owned_store);
	free(config->owned_fetch);
	tenants_free(config);
	config->owned_socket = NULL;
	config->owned_launcher = NULL;
	config->owned_import = NULL;
	config->owned_store = NULL;
	config->owned_fetch = NULL;
}

int config_parse(struct config *config, int argc, char **argv, enum config_mode *ret_mode)
{
	enum config_mode mode = CONFIG_RUN;
	int r;

	for (int i = 1; i < argc; i++) {
		const char *name = argv[i] + 2, *value = NULL;
		size_t bytes;
		const struct option *o;

		if (strncmp(argv[i], "--", 2) != 0) {
			fprintf(stderr, "dsecd: '%s' is not an option; see --help\n", argv[i]);
			return -EINVAL;
		}
		bytes = strcspn(name, "=");
		o = option_find(name, bytes);
		if (!o) {
			fprintf(stderr, "dsecd: there is no option '%.*s'; see --help\n",
				(int)bytes + 2, argv[i]);
			return -EINVAL;
		}
		if (name[bytes] == '=')
			value = name + bytes + 1;
		if (!o->value && value) {
			fprintf(stderr, "dsecd: --%s takes no value\n", o->name);
			return -EINVAL;
		}
		if (o->value && !value)
			value = i + 1 < argc ? argv[++i] : NULL;
		if (o->value && !value) {
			fprintf(stderr, "dsecd: --%s wants %s\n", o->name, o->value);
			return -EINVAL;
		}
		config->given |= 1ull << (o - options);
		if (o->type == OPTION_ANSWER) {
			mode = (enum config_mode)o->max;
			continue;
		}
		r = option_set(config, o, value);
		if (r < 0)
			return r;
	}
	r = paths_complete(config);
	if (r >= 0)
		r = tenants_check(config);
	if (r < 0)
		return r;
	*ret_mode = mode;
	return mode == CONFIG_RUN ? 0 : 1;
}

bool config_is_given(const struct config *config, const char *option)
{
	const struct option *o = option_find(option, strlen(option));

	return o && config->given >> (o - options) & 1;
}

void config_help(const struct config *config, FILE *to)
{
	fputs("usage: dsecd [OPTION...]\n\n"
	      "Runs the DSec engine of this node under its keeper. Options, with the defaults\n"
	      "of this machine; BYTES may end in K, M, G or T, TIME in s, m, h or d.\n\n",
	      to);
	for (size_t i = 0; i < OPTIONS; i++)
		option_print(config, &options[i], to);
	fputs("\nExit status: 0 after a clean end, 1 when something failed or was left, 2 when\n"
	      "the configuration or the machine was refused. See dsecd(8).\n",
	      to);
}

/* Beside this one. */
static int program_default(const char *name, char **ret_path)
{
	auto_free char *self = realpath("/proc/self/exe", NULL);
	char *slash;

	if (!self)
		return errno == ENOMEM ? -ENOMEM : -ENOENT;
	slash = strrchr(self, '/');
	*slash = '\0';
	return asprintf(ret_path, "%s/%s", self, name) < 0 ? -ENOMEM : 0;
}

/* The socket's default follows the instance's name. */
static int paths_complete(struct config *config)
{
	if (config_is_given(config, "socket")) {
		if (strlen(config->socket_path) < sizeof(((struct sockaddr_un *)0)->sun_path))
			return 0;
		fprintf(stderr, "dsecd: --socket: a socket's path has at most %zu bytes\n",
			sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
		return -EINVAL;
	}
	free(config->owned_socket);
	config->owned_socket = NULL;
	if (!strcmp(config->instance, "main"))
		config->owned_socket = strdup("/run/dsec.sock");
	else if (asprintf(&config->owned_socket, "/run/dsec/%s.sock", config->instance) < 0)
		config->owned_socket = NULL;
	config->socket_path = config->owned_socket;
	return config->owned_socket ? 0 : -ENOMEM;
}

static const struct option *option_find(const char *name, size_t bytes)
{
	for (size_t i = 0; i < OPTIONS; i++) {
		if (strlen(options[i].name) == bytes && !memcmp(options[i].name, name, bytes))
			return &options[i];
	}
	return NULL;
}

/* ---- values ---- */

/* Digits, then at most one letter of `units`, whose factors are in the same place of `factors`. */
static int number_parse(const char *text, int base, const char *units, const uint64_t *factors,
			uint64_t *ret)
{
	char *end;
	uint64_t number;
	const char *unit;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	number = strtoull(text, &end, base);
	if (errno)
		return -ERANGE;
	if (*end) {
		unit = strchr(units, *end);
		if (!unit || end[1])
			return -EINVAL;
		if (__builtin_mul_overflow(number, factors[unit - units], &number))
			return -ERANGE;
	}
	*ret = number;
	return 0;
}

static int option_number(const struct option *o, const char *value, uint64_t *ret)
{
	static const uint64_t bytes[] = { 1ull << 10, 1ull << 20, 1ull << 30, 1ull << 40 };
	static const uint64_t seconds[] = { 1, 60, 3600, 86400 };
	uint64_t number = 0;
	int r;

	if (o->type == OPTION_BYTES)
		r = number_parse(value, 10, "KMGT", bytes, &number);
	else if (o->type == OPTION_SECONDS)
		r = number_parse(value, 10, "smhd", seconds, &number);
	else
		r = number_parse(value, o->type == OPTION_MODE ? 8 : 10, "", NULL, &number);
	if (r == -EINVAL) {
		fprintf(stderr, "dsecd: --%s: '%s' is not %s %s\n", o->name, value,
			strchr("AEIOU", o->value[0]) ? "an" : "a", o->value);
		return r;
	}
	if (r < 0 || number < o->min || number > o->max) {
		fprintf(stderr,
			o->type == OPTION_MODE ?
				"dsecd: --%s: %s is not from %" PRIo64 " to %" PRIo64 "\n" :
				"dsecd: --%s: %s is not from %" PRIu64 " to %" PRIu64 "\n",
			o->name, value, o->min, o->max);
		return -EINVAL;
	}
	*ret = number;
	return 0;
}

static int name_set(char *to, const char *name)
{
	size_t bytes = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

	if (name[bytes] || bytes < 1 || bytes > NAME_BYTES_MAX) {
		fprintf(stderr, "dsecd: --instance: a name is 1 to %d of a-z, 0-9 and -\n",
			NAME_BYTES_MAX);
		return -EINVAL;
	}
	/* /run/dsec/uids holds the locks of the uid ranges. */
	if (!strcmp(name, "uids")) {
		fprintf(stderr, "dsecd: --instance: the name 'uids' is reserved\n");
		return -EINVAL;
	}
	memcpy(to, name, bytes + 1);
	return 0;
}

/* Word `at` of VALUE, from 0; 0 bytes: there are fewer. */
static size_t word_at(const struct option *o, uint64_t at, const char **ret)
{
	const char *word = o->value;

	for (; at && *word; at--) {
		word += strcspn(word, "|");
		word += *word == '|';
	}
	*ret = word;
	return strcspn(word, "|");
}

static int word_set(const struct option *o, const char *name, uint32_t *to)
{
	const char *word;
	size_t bytes;

	for (uint32_t at = 0; (bytes = word_at(o, at, &word)); at++) {
		if (strlen(name) == bytes && !memcmp(word, name, bytes)) {
			*to = (uint32_t)o->min + at;
			return 0;
		}
	}
	fprintf(stderr, "dsecd: --%s: '%s' is not one of %s\n", o->name, name, o->value);
	return -EINVAL;
}

static int option_set(struct config *config, const struct option *o, const char *value)
{
	void *field = (char *)config + o->offset;
	uint64_t number = 0;
	int r;

	switch (o->type) {
	case OPTION_NAME:
		return name_set(field, value);
	case OPTION_WORD:
		return word_set(o, value, field);
	case OPTION_PATH:
		*(const char **)field = value;
		if (value[0])
			return 0;
		fprintf(stderr, "dsecd: --%s: the path is empty\n", o->name);
		return -EINVAL;
	case OPTION_TENANT:
		return tenant_parse(config, value);
	case OPTION_ON:
	case OPTION_OFF:
		*(bool *)field = o->type == OPTION_ON;
		return 0;
	default:
		break;
	}
	r = option_number(o, value, &number);
	if (r < 0)
		return r;
	if (o->type == OPTION_FD) {
		/* Close-on-exec: a launcher must not keep the other end waiting. */
		if (fcntl((int)number, F_SETFD, FD_CLOEXEC) < 0) {
			fprintf(stderr, "dsecd: --%s: descriptor %s is not open\n", o->name, value);
			return -EINVAL;
		}
		*(int *)field = (int)number;
	} else if (o->type == OPTION_BYTES || o->type == OPTION_LARGE) {
		*(uint64_t *)field = number;
	} else {
		*(uint32_t *)field = (uint32_t)number;
	}
	return 0;
}

/* ---- help ---- */

static void bytes_format(uint64_t bytes, char *ret, size_t ret_bytes)
{
	const char *units = "KMGT";
	int unit = -1;

	while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
		bytes /= 1024;
		unit++;
	}
	snprintf(ret, ret_bytes, "%" PRIu64 "%.*s", bytes, unit >= 0,
		 units + (unit > 0 ? unit : 0));
}

static void option_print(const struct config *config, const struct option *o, FILE *to)
{
	const void *field = (const char *)config + o->offset;
	char left[40], number[32];
	const char *value = NULL;
	size_t bytes;

	switch (o->type) {
	case OPTION_NAME:
		value = field;
		break;
	case OPTION_PATH:
		value = *(const char *const *)field;
		break;
	case OPTION_BYTES:
		bytes_format(*(const uint64_t *)field, number, sizeof(number));
		value = number;
		break;
	case OPTION_LARGE:
		snprintf(number, sizeof(number), "%" PRIu64, *(const uint64_t *)field);
		value = number;
		break;
	case OPTION_COUNT:
	case OPTION_SECONDS:
	case OPTION_MODE:
		snprintf(number, sizeof(number),
			 o->type == OPTION_MODE	   ? "0%" PRIo32 :
			 o->type == OPTION_SECONDS ? "%" PRIu32 "s" :
						     "%" PRIu32,
			 *(const uint32_t *)field);
		value = number;
		break;
	case OPTION_WORD:
		if (*(const uint32_t *)field < o->min)
			break; /* none of them */
		bytes = word_at(o, *(const uint32_t *)field - o->min, &value);
		snprintf(number, sizeof(number), "%.*s", (int)bytes, value);
		value = number;
		break;
	default:
		break;
	}
	snprintf(left, sizeof(left), "--%s%s%s", o->name, o->value ? " " : "",
		 o->value ? o->value : "");
	fprintf(to, "  %-26s %s%s%s%s\n", left, o->help, value ? " (" : "", value ? value : "",
		value ? ")" : "");
}
