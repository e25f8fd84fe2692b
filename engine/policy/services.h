/*
 * Named services: an operator's, from the documents of one folder, read as the engine starts and
 * when it is told to read them again. Policies allow them by name. A service is a list of places,
 * each written as an entry of network.egress.allow is.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SERVICES_MAX = 64,
	SERVICE_PLACES_MAX = 64,
	SERVICE_NAME_MAX = 63,
	SERVICE_BYTES_MAX = 64 << 10, /* of a document */
};

struct service {
	char name[SERVICE_NAME_MAX + 1];
	uint32_t place_count;
	char *places[SERVICE_PLACES_MAX]; /* "mirror.example tcp/443" */
};

/* One reading; never changed once it is the table's. */
struct services {
	uint32_t number;	/* of the table's readings, from 1 */
	uint32_t users;		/* atomic: who tells of them */
	struct services *older; /* the one before that somebody may tell of still */
	uint32_t count;
	struct service list[SERVICES_MAX]; /* in order of names */
};

enum { SERVICES_WHY_BYTES = 400 };

/*
 * All *.yaml of a folder, in order of names. -EBADMSG: one is wrong, and ret_why says
 * "FILE:LINE:COLUMN FIELD: what"; -E2BIG; -ENOMEM; or why something cannot be read, with its name.
 */
int services_read(const char *folder, struct services **ret, char ret_why[SERVICES_WHY_BYTES]);
/* With all that are older. NULL is fine. */
void services_free(struct services *services);
bool services_are_same(const struct services *a, const struct services *b);
/* By any thread, while it is used: what services_use() took on the control thread. */
void services_use(struct services *services);
void services_put(struct services *services);
/* Older ones that nobody uses are freed. */
void services_sweep(struct services *services);
/* NULL: there is none of that name; services may be NULL. */
const struct service *services_find(const struct services *services, const char *name);
/* "a, b, c", cut; or that there are none. */
void services_names(const struct services *services, char *ret, size_t bytes);
/* One document's, for tests: as above. */
struct policy_mistake;
int services_add(struct services *services, const char *text, size_t bytes,
		 struct policy_mistake *mistake);
