/* Rows on stdout, in columns of fixed width: each can be shown as it comes. */
#pragma once

#include <dsec/dsec.h>

#include "sdk/cli/params.h"

struct column {
	const char *name;
	int width; /* 0: the last one, as wide as it gets */
};

void table_head(const struct options *options, const struct column *columns);
/* One cell; what others chose is made harmless. */
void table_cell(const struct column *column, struct dsec_bytes bytes);
void table_text(const struct column *column, const char *text);
/* A size; UINT64_MAX: "-". */
void table_bytes(const struct column *column, uint64_t bytes);
/* Of a CPU, in thousandths: "0.3%"; UINT64_MAX: "-". */
void table_share(const struct column *column, uint64_t permille);
void table_end(void);
