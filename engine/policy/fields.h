/*
 * What a policy's document may say: one row per field. The published schema
 * (docs/policy.schema.json) says the same, which a test checks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/integrity/anomaly.h"

enum policy_field_id {
	FIELD_NAME,
	FIELD_EXTENDS,
	FIELD_FILES_PROTECT,
	FIELD_FILES_READONLY,
	FIELD_FILES_HIDE,
	FIELD_FILES_NOEXEC,
	FIELD_FILES_VERIFY,
	FIELD_IOCTLS_ALLOW, /* all others are refused */
	FIELD_IOCTLS_DENY,
	FIELD_SOCKETS_FAMILIES,
	FIELD_SOCKETS_UNIX_DENY,
	FIELD_PTRACE,
	FIELD_SIGNAL,
	FIELD_BPF,
	FIELD_PERF,
	FIELD_USERFAULTFD,
	FIELD_KEYCTL,
	FIELD_USERNS,
	FIELD_IO_URING,
	FIELD_SETSCHEDULER,
	FIELD_CORE_SCHED,
	FIELD_MOUNT,
	FIELD_NETWORK_MODE,
	FIELD_EGRESS_ALLOW,
	FIELD_EGRESS_DENY,
	FIELD_CAP_CONNECTIONS,
	FIELD_CAP_BYTES,
	FIELD_CAP_CONNECTIONS_PER_S,
	FIELD_CAP_BYTES_PER_S,
	FIELD_PHASES,
	FIELD_ANOMALIES, /* ANOMALY_FIELDS of each rule, in order of enum dsec_anomaly */
	FIELD_ANOMALIES_END = FIELD_ANOMALIES + 3 * DSEC_ANOMALIES,
	FIELD_ENFORCE_FILES = FIELD_ANOMALIES_END,
	FIELD_ENFORCE_IOCTLS,
	FIELD_ENFORCE_SOCKETS,
	FIELD_ENFORCE_PROCESSES,
	POLICY_FIELDS,
};

enum policy_field_kind {
	FIELD_IS_POLICY, /* a policy's name */
	FIELD_IS_PATHS,	 /* a list */
	FIELD_IS_IOCTLS,
	FIELD_IS_FAMILIES,
	FIELD_IS_SOCKETS,
	FIELD_IS_DESTINATIONS, /* a list, see egress.h */
	FIELD_IS_WORD,
	FIELD_IS_COUNT,	  /* 1 to FIELD_COUNT_MAX */
	FIELD_IS_SECONDS, /* 0 to a day */
	FIELD_IS_BYTES,	  /* 1 to FIELD_BYTES_MAX, as 4096 or 64MiB */
	FIELD_IS_PHASES,  /* a map: name of a phase, name of its policy */
};

/* Of an anomaly rule's fields. */
enum { ANOMALY_LIMIT, ANOMALY_WINDOW, ANOMALY_SEVERITY, ANOMALY_FIELDS };
enum { FIELD_COUNT_MAX = 1000000, FIELD_SECONDS_MAX = 86400 };
#define FIELD_BYTES_MAX (1ull << 50)

struct policy_word {
	const char *name;
	uint32_t value;
};

struct policy_words {
	const struct policy_word *words;
	size_t count;
};

struct policy_field {
	const char *path; /* "files.protect" */
	enum policy_field_kind kind;
	struct policy_words words; /* what a value may be; of lists: among others */
	uint32_t rule; /* of a word that refuses: enum guard_process; of a cap: enum guard_cap */
};

/* Values of words. */
enum { WORD_ALLOW, WORD_DENY, WORD_INSIDE };
enum { ENFORCE_REQUIRED, ENFORCE_WHERE_POSSIBLE, ENFORCE_AUDIT }; /* the first one without */

const struct policy_field *policy_field(enum policy_field_id id);
/* NULL: none of that name. */
const struct policy_word *policy_word(const struct policy_words *words, const char *name);
enum { IOCTL_GROUP_MAX = 48 };
/* The numbers of a group of ioctls by its place in the words, fewer than that. Ends with 0. */
const uint16_t *policy_ioctl_group(uint32_t group);

/* The name that was probably meant, or NULL: at most two letters away. */
const char *policy_nearest(const char *name, const char *const *known, size_t count);
/* Name of a policy or phase: [a-z0-9-]{1,63}, no - at its ends. */
bool policy_name_is_good(const char *name);
