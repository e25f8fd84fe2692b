/*
 * A policy's document, read and checked: what it says, entry by entry in its order. Texts live as
 * long as the document.
 */
#pragma once

#include <stdint.h>

#include "engine/policy/fields.h"
#include "engine/policy/yaml.h"

enum { POLICY_DOCUMENT_BYTES_MAX = 64 << 10 };

struct policy_entry {
	enum policy_field_id field;
	uint64_t value;	  /* of a word; of an ioctl its group or number, see is_number */
	const char *text; /* as it was written */
	const char
		*key; /* phases: the name of the phase; "service": the text is one's; else NULL */
	bool is_number;
	uint32_t line, column;
};

struct policy_document {
	struct yaml_text *yaml;
	const char *name, *extends; /* extends NULL: nothing */
	uint32_t extends_line, extends_column;
	uint32_t count;
	struct policy_entry entries[]; /* all but those two */
};

/* 0; -EBADMSG: the mistake says where and what; -ENOMEM. */
int policy_document_read(const char *text, size_t bytes, struct policy_document **ret,
			 struct policy_mistake *mistake);
void policy_document_free(struct policy_document *document);
