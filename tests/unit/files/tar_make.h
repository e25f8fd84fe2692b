/*
 * Archives as an attacker writes them: any header, whatever it says.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct tar {
	char *bytes;
	size_t count;
};

struct tar_entry {
	const char *name, *link;
	char type;	     /* 0: '0', a regular file */
	uint32_t mode;	     /* 0: 0644 */
	const char *content; /* NULL: none */
	uint64_t size;	     /* told; 0: the content's */
};

void tar_add(struct tar *tar, const struct tar_entry *entry);
/* A record that overrides a field of the next entry. */
void tar_pax(struct tar *tar, const char *key, const char *value);
void tar_end(struct tar *tar);
void tar_done(struct tar *tar);
