/* Values as people write and read them: times, sizes, and names that others chose. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <dsec/dsec.h>

enum { VALUE_TEXT_BYTES = 32 };

/* "250ms", "90s", "15m", "2h", "1d"; a number alone is seconds. -EINVAL, -ERANGE. */
int value_parse_ms(const char *text, uint64_t *ret_ms);
/* "4096", "256M": a whole number, and K, M, G or T for powers of 1024. -EINVAL, -ERANGE. */
int value_parse_bytes(const char *text, uint64_t *ret_bytes);
/* A whole decimal number. -EINVAL, -ERANGE. */
int value_parse_number(const char *text, uint64_t *ret);
/* "2", "0.5", "1.25": thousandths, and no more digits than they have. -EINVAL, -ERANGE. */
int value_parse_permille(const char *text, uint64_t *ret);
void value_print_permille(uint64_t permille, char *ret_text);

/* As they are parsed, without loss: "1500ms", "24h"; "4K", "64T". ret_text has VALUE_TEXT_BYTES. */
void value_print_exact_ms(uint64_t ms, char *ret_text);
void value_print_exact_bytes(uint64_t bytes, char *ret_text);

/* "12s", "4m", "1h56m", "3d"; UINT64_MAX: "-". ret_text has VALUE_TEXT_BYTES. */
void value_print_ms(uint64_t ms, char *ret_text);
/* "84 MB" with powers of 1024; UINT64_MAX: "-". */
void value_print_bytes(uint64_t bytes, char *ret_text);
/* "48,112" */
void value_print_count(uint64_t count, char *ret_text);

/*
 * Writes bytes that others chose. Control characters and what is not UTF-8 become \xNN: nobody's
 * name may move the cursor or begin a line.
 */
void value_write(FILE *file, struct dsec_bytes bytes);
/* How many columns value_write() takes on a terminal, roughly: one per character. */
size_t value_columns(struct dsec_bytes bytes);

bool value_is_utf8(struct dsec_bytes bytes);
