/* What is in force in a sandbox, for people and as JSON. Called by the verbs. Stateless. */
#include "sdk/cli/settings.h"

#include <stdio.h>
#include <string.h>

#include "sdk/cli/report.h"
#include "sdk/cli/values.h"

static const struct {
	uint32_t limit; /* enum dsec_limit */
	const char *name;
} names[] = {
	{ DSEC_LIMIT_MEMORY, "memory" },
	{ DSEC_LIMIT_SWAP, "swap" },
	{ DSEC_LIMIT_PIDS, "pids" },
	{ DSEC_LIMIT_CPU, "cpu" },
	{ DSEC_LIMIT_IO, "io" },
	{ DSEC_LIMIT_IO_WEIGHT, "io-weight" },
	{ DSEC_LIMIT_PROCESSES, "processes-per-s" },
};

const char *state_name(uint32_t state)
{
	static const char *const states[] = { "other",	    "creating",	   "running",
					      "destroying", "quarantined", "ended" };

	return states[state < sizeof(states) / sizeof(states[0]) ? state : 0];
}

const char *cause_name(uint32_t cause)
{
	static const char *const causes[] = { "none",	      "destroyed", "ttl", "idle-ttl",
					      "disconnected", "died",	   "oom", "stopped",
					      "cancelled",    "failed" };

	return causes[cause < sizeof(causes) / sizeof(causes[0]) ? cause : 0];
}

void limits_text(uint64_t limits, char ret_text[LIMITS_TEXT_BYTES])
{
	size_t used = 0;

	ret_text[0] = '\0';
	for (size_t at = 0; at < sizeof(names) / sizeof(names[0]); at++)
		if (limits & names[at].limit)
			used += (size_t)snprintf(ret_text + used, LIMITS_TEXT_BYTES - used, " %s",
						 names[at].name); /* all of them fit */
}

void settings_add(json_t *object, const struct dsec_created *s)
{
	const char *network = network_name(s->network);

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "network", json_string(network));
	(void)json_object_set_new(object, "network_why",
				  json_string(network_why_name(s->network_why)));
	(void)json_object_set_new(object, "network_scope",
				  json_string(network_scope_name(s->network_scope)));
	(void)json_object_set_new(object, "memory_bytes", json_amount(s->memory_bytes));
	(void)json_object_set_new(object, "swap_bytes", json_amount(s->swap_bytes));
	(void)json_object_set_new(object, "disk_bytes", json_amount(s->disk_bytes));
	(void)json_object_set_new(object, "inodes", json_amount(s->inodes));
	(void)json_object_set_new(object, "pids_max", json_integer(s->pids_max));
	(void)json_object_set_new(object, "processes_per_s", json_integer(s->processes_per_s));
	(void)json_object_set_new(object, "cpu_weight", json_integer(s->cpu_weight));
	(void)json_object_set_new(object, "cpu_max_permille", json_integer(s->cpu_max_permille));
	(void)json_object_set_new(object, "io_weight", json_integer(s->io_weight));
	(void)json_object_set_new(object, "io_bytes_per_s", json_amount(s->io_bytes_per_s));
	(void)json_object_set_new(object, "sched_idle",
				  json_boolean(s->flags & DSEC_CREATE_SCHED_IDLE));
	(void)json_object_set_new(object, "output_limit_bytes", json_amount(s->output_limit_bytes));
	(void)json_object_set_new(object, "ttl_s", json_integer(s->ttl_s));
	(void)json_object_set_new(object, "idle_ttl_s", json_integer(s->idle_ttl_s));
	(void)json_object_set_new(object, "on_timeout",
				  json_string(s->on_timeout == DSEC_ON_TIMEOUT_PAUSE ? "pause" :
										       "destroy"));
	(void)json_object_set_new(
		object, "on_disconnect",
		json_string(s->on_disconnect == DSEC_DISCONNECT_DESTROY ? "destroy" : "keep"));
	(void)json_object_set_new(object, "unenforced", json_integer(s->unenforced));
	(void)json_object_set_new(object, "policy_version", json_integer(s->policy));
	(void)json_object_set_new(object, "rules_unenforced", json_integer(s->rules_unenforced));
	(void)json_object_set_new(object, "reused", json_boolean(s->reused));
}

/* Bytes that are no UTF-8 cannot be keys: labels with any are listed beside the others. */
void labels_add(json_t *object, const struct dsec_label *all, uint32_t count)
{
	json_t *labels = json_object(), *others = json_array();

	for (uint32_t at = 0; at < count; at++) {
		struct dsec_bytes key = all[at].key, value = all[at].value;

		if (value_is_utf8(key))
			(void)json_object_setn_new(labels, key.data, key.bytes, json_text(value));
		if (!value_is_utf8(key) || !value_is_utf8(value))
			(void)json_array_append_new(others,
						    json_pack("{s:o, s:o}", "key", json_base64(key),
							      "value", json_base64(value)));
	}
	(void)json_object_set_new(object, "labels", labels);
	if (json_array_size(others))
		(void)json_object_set(object, "labels_base64", others);
	json_decref(others);
}

void integrity_add(json_t *object, uint32_t tainted)
{
	char text[INTEGRITY_TEXT_BYTES];

	integrity_text(tainted, text);
	(void)json_object_set_new(object, "integrity", json_string(text)); /* as all of them */
}

void phase_add(json_t *object, struct dsec_bytes name, uint64_t version)
{
	(void)json_object_set_new(object, "phase",
				  name.bytes ? json_text(name) : json_null()); /* as all of them */
	(void)json_object_set_new(object, "phase_version", json_amount(version));
}

bool fork_is(struct dsec_id source)
{
	return source.hi || source.lo;
}

void fork_add(json_t *object, struct dsec_id source)
{
	(void)json_object_set_new(object, "fork_of",
				  fork_is(source) ? json_id(source) : json_null()); /* as all */
}
