/*
 * What tests ask of an engine, over libdsec: sandboxes, commands in them, and their outcomes as one
 * struct each. Whatever the library itself refuses is a noted failure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dsec/dsec.h>

enum { COMMAND_WORDS_MAX = 8 };

struct command {
	const char *argv[COMMAND_WORDS_MAX + 1];
	const char *env[COMMAND_WORDS_MAX + 1];
	const char *cwd, *user;
	const void *input;
	size_t input_bytes;
	uint32_t timeout_ms; /* of the program */
	uint32_t call_timeout_ms;
	uint32_t flags; /* captured unless it streams or detaches */
	uint64_t head_bytes, tail_bytes, window_bytes;
	uint32_t idle_timeout_ms, kill_after_ms;
	uint64_t output_limit_bytes;
	uint64_t phase;
};

#define SH(script)                                                                                 \
	{                                                                                          \
		.argv = { "/bin/sh", "-c", script }                                                \
	}

/* How a command ended. `result` is NULL where it did not come to run; see status. */
struct ran {
	struct dsec_event *event;
	const struct dsec_result *result;
	struct dsec_status status;
	bool started; /* DSEC_EV_STARTED came */
	double ms;
};

#define auto_ran __attribute__((cleanup(ran_done)))

/* The ticket or what the library says; command_start() notes the latter. */
int64_t command_try(struct dsec *d, struct dsec_id id, const struct command *c,
		    const struct dsec_call *call);
int64_t command_start(struct dsec *d, struct dsec_id id, const struct command *c,
		      const struct dsec_call *call);
struct ran command_wait(struct dsec *d, int64_t ticket);
struct ran command_run(struct dsec *d, struct dsec_id id, const struct command *c);
struct ran shell_run(struct dsec *d, struct dsec_id id, const char *script);
void ran_done(struct ran *ran);
/* It exited with this code, by itself. */
bool ran_exited(const struct ran *ran, int code);
/* It exited with 0 and its standard output is exactly this. */
bool ran_says(const struct ran *ran, const char *text);
bool ran_wrote(const struct ran *ran, uint32_t stream, const void *bytes, size_t count);
const struct dsec_output *ran_output(const struct ran *ran, uint32_t stream);
/* One line for people, when a claim failed. */
void ran_note(const struct ran *ran);

/* How a create ended. */
struct made {
	uint32_t asked, created, refused, failed, reused;
	struct dsec_status trouble; /* of the first that was not created */
	struct dsec_status last;
	uint32_t retry_ms_min; /* of the refused */
	uint32_t ids_max;
	struct dsec_id *ids; /* of the caller; as many as fit */
};

#define auto_made __attribute__((cleanup(made_done)))

int64_t create_start(struct dsec *d, const struct dsec_create_opts *opts,
		     const struct dsec_call *call);
struct made create_wait(struct dsec *d, int64_t ticket, uint32_t count);
struct made create_run(struct dsec *d, const struct dsec_create_opts *opts);
void made_done(struct made *made);
struct dsec_create_opts create_opts(uint32_t count);

/* One sandbox, and one with the defaults; the zero id is a noted failure. */
struct dsec_id one_make(struct dsec *d, const struct dsec_create_opts *opts);
struct dsec_id sandbox_make(struct dsec *d);
struct dsec_id networked_make(struct dsec *d, uint32_t network);
void sandbox_end(struct dsec *d, struct dsec_id id);
struct dsec_status sandboxes_end(struct dsec *d, const struct dsec_id *ids, uint32_t count);

/* Takes what is left of a ticket; its LAST's status. */
struct dsec_status ticket_end(struct dsec *d, int64_t ticket);
/* size 0: the connection was lost. */
struct dsec_holdings holdings_now(struct dsec *d);
/* Nothing of a client's is held: every gauge of that is zero. */
bool holdings_are_none(const struct dsec_holdings *h);
uint32_t list_count(struct dsec *d);
/* Destroys what is listed. */
void list_destroy(struct dsec *d);
/* The sandbox is listed, whatever its state. */
bool list_has(struct dsec *d, struct dsec_id id);

/* The status's code; a mistake is noted. */
uint32_t policy_load(struct dsec *d, const char *document);
/* `names` ends with NULL. */
void policies_remove(struct dsec *d, const char *const *names);

/* With a request id of now, a UUIDv7. */
struct dsec_call call_now(void);
double clock_ms(void);
