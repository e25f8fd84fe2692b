/* Builds a request's payload: a struct, then the bytes that it refers to. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dsec/dsec.h>
#include <dsec/ring.h>

struct pack {
	unsigned char *data; /* the caller's to free */
	size_t bytes, capacity;
	int error; /* the first; later calls do nothing */
};

/* Room for the struct, which comes last: its fields are only known then. */
void dsec__pack_begin(struct pack *pack, size_t struct_bytes);
struct dsec_wire_ref dsec__pack_bytes(struct pack *pack, const void *data, size_t bytes);
struct dsec_wire_ref dsec__pack_text(struct pack *pack, const char *text); /* NULL: absent */
struct dsec_wire_items dsec__pack_items(struct pack *pack, const struct dsec_bytes *items,
					uint32_t count);
struct dsec_wire_items dsec__pack_labels(struct pack *pack, const struct dsec_label *labels,
					 uint32_t count);
/* 0: the payload is whole; -EMSGSIZE: it is larger than any may be; -ENOMEM; -EINVAL. */
int dsec__pack_finish(struct pack *pack, const void *content, size_t struct_bytes);
