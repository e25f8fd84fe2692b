/*
 * Sandboxes of a shard: what a client knows by id. Made by create.c, ended here.
 *
 *	creating --built--> running --destroy, ttl, death of PID 1--> destroying --gone--> (freed)
 *	        \--failed--> (freed)                                          |
 *	        \--its time passed--> quarantined <--its time passed----------/
 *
 * A quarantined one is visible, keeps its place and its slot, and is tried again until it is gone;
 * nobody waits for it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "dsec/ring.h"
#include "engine/base/timer.h"
#include "engine/sandbox/lifetime.h"
#include "engine/sandbox/phase.h"
#include "engine/request/request.h"

struct account;
struct anomaly_rules;
struct asker;
struct exec;
struct file;
struct image;
struct forward;
struct guard_name;
struct policy;
struct shard;
struct still;
struct tenancy;
struct tenant;

enum {
	HOSTNAME_BYTES_MAX = 64,
	USER_BYTES_MAX = 64,
	LABEL_BYTES_MAX = 2048,
	LABEL_COUNT_MAX = 128, /* keys and values */
	ENV_BYTES_MAX = 16384,
};

/* A list as on the wire, {bytes, data} each, in memory of our own; NULL: empty. */
struct packed {
	char *bytes;
	uint32_t byte_count, count;
};

/* A destroy request that waits for a sandbox to be gone. */
struct gone_waiter {
	struct part *part;
	struct gone_waiter *next;
};

struct sandbox {
	struct shard *shard;
	struct tenancy *tenancy; /* whose it is */
	struct dsec_wire_id id;
	enum dsec_state state;
	struct box *box;
	struct part *creator;			   /* while creating */
	uint32_t index;				   /* of the create's count */
	uint64_t client;			   /* whose connection created it */
	uint8_t request_id[16];			   /* of the create */
	uint32_t on_disconnect, on_timeout, flags; /* enum dsec_create_flag */
	uint64_t output_limit_bytes;		   /* of execs without their own; 0: none */
	uint64_t created_ns;
	struct lifetime lifetime;
	uint32_t cause; /* enum dsec_cause: why it ends */
	struct timer expiry;
	struct exec *execs, *kept; /* running; over and kept. Newest first */
	uint32_t exec_count, kept_count;
	struct file *files;		  /* operations on them */
	uint32_t file_count, files_asked; /* asked: of them those without an answer */
	uint64_t exec_next;		  /* number of the next exec, from 1 */
	struct forward *forwards;
	uint32_t inbound_count; /* connections to its ports */
	struct gone_waiter *waiters;
	struct box_usage usage;
	struct usage_reader *usage_readers; /* while it is being read, see usage.h */
	uint32_t network, network_why;	    /* enum dsec_network, and why */
	uint64_t cgroup_id;		    /* while it is watched, see engine/integrity */
	struct sandbox *next_watched;
	struct asker *asker;	 /* NULL: it asks for no names, see engine/names */
	struct account *account; /* NULL: it broke no rule */
	uint32_t taint;		 /* bits 1 << enum dsec_anomaly; it stays */
	bool wanted_gone;	 /* destroy as soon as it is built */
	bool ends_counted;	 /* among the ends of `ender` */
	uint64_t ender;
	uint32_t leaves_throttled; /* now */
	uint64_t throttles, throttled_us;
	struct image *image;	     /* used until it is freed; NULL: not described yet */
	struct dsec_wire_id fork_of; /* 0: it is none */
	char *first_image;	     /* of a fork: what the first of them was made of */
	struct policy *policy;	     /* its version, likewise; of its phase */
	struct sandbox_phase phase;
	struct still *still; /* what it wrote is being read; NULL: it is not */
	char hostname[HOSTNAME_BYTES_MAX];
	char user[USER_BYTES_MAX]; /* of execs that name none */
	struct packed labels;	   /* key, value, key, … */
	struct packed env;	   /* NAME=value, for every exec */
};

/* What it was made of, for people: a fork's own image has no name. Described. */
const char *sandbox_image_name(const struct sandbox *sandbox);

/* What its events carry: DSEC_EVENT_UNPOLICED where no policy watches its way out. */
static inline uint16_t sandbox_event_flags(const struct sandbox *sandbox)
{
	return sandbox->network == DSEC_NETWORK_EGRESS_UNPOLICED ? DSEC_EVENT_UNPOLICED : 0;
}

/* Who wants sandboxes gone, and the walk over them. */
struct ender {
	uint64_t client;
	struct walk_turn *walk;
};

/* Creating, for this tenant; NULL when there is no room, and *ret_limit says of what. */
struct sandbox *sandbox_new(struct tenancy *tenancy, const char **ret_limit);
/* Its box is built: running. */
void sandbox_built(struct sandbox *sandbox);
/* Whoever waits is told that it may never be gone; it is tried again. */
void sandbox_quarantine(struct sandbox *sandbox);
/* It could not be built and nothing of it is left. */
void sandbox_failed(struct sandbox *sandbox);
void sandbox_free(struct sandbox *sandbox);
/*
 * The sandbox of an id, or NULL: there is none, or it is not for this tenant to see. Nobody can
 * tell the one from the other.
 */
struct sandbox *sandbox_find(struct shard *shard, const struct tenant *viewer,
			     struct dsec_wire_id id);
/* The one that the part's request names. */
struct sandbox *sandbox_of(const struct part *part);
/* The value of its label of that key, in place; false: it has none. */
bool sandbox_label(const struct sandbox *sandbox, const char *key, const char **ret,
		   size_t *ret_bytes);
/* By which it is judged: its policy's, or the defaults. */
const struct anomaly_rules *sandbox_anomalies(const struct sandbox *sandbox);
/* What its policy allows to a name's addresses; NULL: nothing. */
const struct guard_name *sandbox_name(const struct sandbox *sandbox, const char *name);
/* What is in force. */
struct dsec_wire_created sandbox_settings(const struct sandbox *sandbox);
/* What is left; UINT64_MAX: it does not end by itself. */
uint64_t sandbox_ttl_ms(const struct sandbox *sandbox);
/*
 * Legal in every state, any number of times; the first cause counts. `waiter` (may be NULL) is told
 * when it is gone.
 */
void sandbox_destroy(struct sandbox *sandbox, enum dsec_cause cause, struct part *waiter);
/*
 * The same for a walk over many, in whose middle clients wait for each other: -EAGAIN, and nothing
 * happened, while as many end as may for this client at once. `walk` goes on when one has ended.
 */
int sandbox_destroy_in_turn(struct sandbox *sandbox, enum dsec_cause cause, struct part *waiter,
			    const struct ender *ender);
/* It has ended, or nobody waits for that any more: one more may. */
void sandbox_end_over(struct sandbox *sandbox);
/* Its lifetime or what counts for it changed: when it ends is reckoned anew. */
void sandbox_reckon(struct sandbox *sandbox);
/* What the governor did to a sandbox's box. */
void sandbox_throttled(struct box *box, const struct box_throttle *what);
/* An exec or an operation on a file began or ended: idle time starts anew. */
void sandbox_touch(struct sandbox *sandbox);
/* Its usage was read: it may be freed now. */
void sandbox_usage_over(struct sandbox *sandbox);
/* It is not on its way to another phase any more: likewise. */
void sandbox_move_over(struct sandbox *sandbox);
/* It is not held still any more: likewise. */
void sandbox_still_over(struct sandbox *sandbox);
/* All destroyed: the engine stops. */
void sandboxes_destroy_all(struct shard *shard);

/* A connection ended: its sandboxes with on_disconnect = destroy go, on every shard. */
void sandboxes_disconnect(struct shard *shard, uint64_t client);

bool sandbox_has_labels(const struct sandbox *sandbox, const struct wire *payload,
			const struct dsec_wire_items *labels);
