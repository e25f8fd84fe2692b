/* JSON on stdout: one object per line. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <dsec/dsec.h>

/* A string, or null if the bytes are no UTF-8 (or hold NUL): then see json_add_bytes(). */
json_t *json_text(struct dsec_bytes bytes);
json_t *json_id(struct dsec_id id);
/* null for UINT64_MAX, which means: not measured, or none. */
json_t *json_amount(uint64_t amount);
/* "NAME": text; where that is null also "NAME_base64", or "base64" for the name "text". */
int json_add_bytes(json_t *object, const char *name, struct dsec_bytes bytes);
json_t *json_base64(struct dsec_bytes bytes);
/* status, blame, and what else a status says. */
json_t *json_status(const struct dsec_status *status);
/* One line, flushed. -EIO: it could not be written. */
int json_line(FILE *file, const json_t *object);
