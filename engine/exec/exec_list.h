/*
 * Execs of one sandbox as rows.
 */
#pragma once

#include <stdint.h>

struct part;

/* Those with numbers above `after`; ends the part. */
void exec_list_part(struct part *part, uint64_t after);
