/*
 * Where package managers of an image fetch from, by their own configuration. Pure: text in, a
 * document of named services out. The text is an image's: anything may stand there.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum scan_kind { SCAN_APT, SCAN_PIP, SCAN_NPM, SCAN_CARGO, SCAN_GO, SCAN_GIT, SCAN_KINDS };

enum { SCAN_PLACES_MAX = 256, SCAN_HOST_BYTES = 256, SCAN_FILE_BYTES = 64 << 10 };

struct scan {
	uint32_t count;
	uint32_t left_out; /* that found no room */
	struct scan_place {
		enum scan_kind kind;
		uint32_t protocol, port;
		char host[SCAN_HOST_BYTES];
	} places[SCAN_PLACES_MAX];
};

struct scan_file {
	const char *path;
	enum scan_kind kind;
	const char *suffix; /* path is a folder: of its files those that end so; else NULL */
};

extern const struct scan_file scan_files[];
extern const size_t scan_file_count;

/* What one file says; at most SCAN_FILE_BYTES of it. */
void scan_text(struct scan *scan, enum scan_kind kind, const char *text, size_t bytes);
/* As a document for dsecd --services; nothing where nothing was found. */
void scan_print(struct scan *scan, FILE *file);
