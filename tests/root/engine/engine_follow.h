/*
 * Followers: tests that read an exec's streams as they come, and check that every byte comes once,
 * in order, or is told as a gap.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <dsec/dsec.h>

struct followed {
	char *bytes;
	uint64_t from, next; /* of the first byte expected, and of the next */
	uint64_t gaps, missing;
	uint64_t room;
};

struct follower {
	struct dsec *d;
	int64_t ticket;
	struct followed streams[2]; /* stdout, stderr */
	struct dsec_event *last;    /* NULL: it goes on */
	const struct dsec_result *result;
	uint64_t exec;	   /* as STARTED said */
	uint64_t events;   /* DATA */
	bool wrong_offset; /* bytes came twice, or were left out without a word */
};

#define auto_follower __attribute__((cleanup(follower_done)))

/* From the ticket of an exec with DSEC_EXEC_STREAM, or of an attach. */
struct follower follower_of(struct dsec *d, int64_t ticket);
/* To an exec from these offsets on. */
struct follower follower_attach(struct dsec *d, struct dsec_id id, uint64_t exec, uint64_t from,
				uint32_t flags);
void follower_done(struct follower *f);
/* The next event, whatever it is, within so long. */
bool follower_step(struct follower *f, int timeout_ms);
/* Until a stream has this, or all have ended. */
bool follower_until(struct follower *f, uint32_t stream, uint64_t bytes, int timeout_ms);
bool follower_to_end(struct follower *f, int timeout_ms);
/* All of a stream from where it began is exactly this. */
bool follower_has(const struct follower *f, uint32_t stream, const void *bytes, uint64_t count);
/* Gives bytes, or none for the end; how the request ended. */
uint32_t follower_give(struct dsec *d, int64_t ticket, uint64_t offset, const char *text);
