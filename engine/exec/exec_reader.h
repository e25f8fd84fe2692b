/*
 * What request.c asks of the parts of EXEC and ATTACH, whose `work` is their reader.
 */
#pragma once

#include <stdint.h>

struct part;

void reader_input(struct part *part, struct part *input);
int reader_credit(struct part *part, uint32_t stream, uint64_t consumed);
/* The program runs on, and so does the exec. */
void reader_cancel(struct part *part);
