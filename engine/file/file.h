/*
 * Operations on files in sandboxes: each is one run of the file helper, which does the work inside.
 */
#pragma once

#include <stdint.h>

struct sandbox;
struct status;

/* The sandbox goes, or its phase: every operation in it ends, as the status says. */
void files_end(struct sandbox *sandbox, const struct status *status);
/* The sandbox does not end in time: whoever waits for one of them is told. */
void files_overdue(struct sandbox *sandbox);
/* sandbox.c: an operation is over and freed. */
void sandbox_file_over(struct sandbox *sandbox);
/* The size of an operation, for the shard's pool. */
uint32_t file_bytes(void);
