/*
 * Functions and calls as tests ask for them, over libdsec: one struct per call, with all it wrote.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dsec/dsec.h>

enum { CALLS_MAX = 1024 };

struct called {
	struct dsec_status status;
	struct dsec_called result; /* size 0: there is none */
	char *bytes[2];		   /* stdout, stderr; each ends with a NUL of ours */
	size_t counts[2];
	unsigned times; /* its DONE came */
	bool is_replayed;
	uint64_t missing; /* of its output, as GAP */
	double ms;	  /* until then */
};

/* What a request of several inputs came to. */
struct calls {
	struct called *all;
	uint32_t count;
	struct dsec_status last;
	unsigned lasts;
};

#define auto_called __attribute__((cleanup(called_done)))
#define auto_calls  __attribute__((cleanup(calls_done)))

/* A shell's script as a function; opts: its limits and isolation, may be NULL. */
struct dsec_id function_of(struct dsec *d, const char *name, const char *script,
			   const struct dsec_function_opts *opts);
/* The status of a register; *ret_id when it is good. */
struct dsec_status function_try(struct dsec *d, const struct dsec_function_opts *opts,
				struct dsec_id *ret_id);
struct dsec_status function_end(struct dsec *d, struct dsec_id id);

struct called call_run(struct dsec *d, struct dsec_id id, const char *input);
void called_done(struct called *called);
/* It has this verdict; a line says what else it has. */
bool called_is(const struct called *called, uint32_t verdict);
/* OK, and this is all of its standard output. */
bool called_says(const struct called *called, const char *text);

int64_t calls_start(struct dsec *d, struct dsec_id id, const struct dsec_bytes *inputs,
		    uint32_t count);
/* Under the call's request id. */
struct calls calls_ask(struct dsec *d, const struct dsec_call *call, struct dsec_id id,
		       const struct dsec_bytes *inputs, uint32_t count);
struct calls calls_wait(struct dsec *d, int64_t ticket, uint32_t count);
struct calls calls_run(struct dsec *d, struct dsec_id id, const struct dsec_bytes *inputs,
		       uint32_t count);
void calls_done(struct calls *calls);
