/* What went wrong, as people read it: one line on stderr each. */
#pragma once

#include <dsec/dsec.h>

#include "sdk/cli/params.h"

/* Exit statuses that are not the guest's. */
enum { EXIT_DIFFERS = 1, EXIT_TIMED_OUT = 124, EXIT_TROUBLE = 125 };

/* "dsec: create refused: DETAIL at STEP (errno) [blame]; what to do" */
void report_status(const char *what, const struct dsec_status *status);
/* "dsec: TEXT" */
void report_error(const char *text);
/* As report_error(), unless the user wants quiet; for notes, not for errors. */
__attribute__((format(printf, 2, 3))) void report_note(const struct options *options,
						       const char *format, ...);

/* A failure of libdsec's or of our own as a status: its detail is the text, which may be cut. */
struct dsec_status status_of_error(int r, const char *step, const char *text);

const char *code_name(uint32_t code);
const char *blame_name(uint32_t blame);
const char *network_name(uint32_t network);
const char *network_why_name(uint32_t why);
const char *network_scope_name(uint32_t scope);
/* What this host lacks for network `shared`; NULL: that is not why. */
const char *network_lack(uint32_t why);
const char *reason_name(uint32_t reason);
/* Of an anomaly rule, and of what a program tried. */
const char *anomaly_name(uint32_t anomaly);
const char *hook_name(uint32_t hook);
/* Rules from here on are everybody's; the name of one; NULL: a policy's, or a newer engine's. */
enum { RULES_OWN = 0x8000 };
const char *rule_name(uint32_t rule);
enum { INTEGRITY_TEXT_BYTES = 256 };
/* "clean", or "tainted[port-scan, hunting]". */
void integrity_text(uint32_t tainted, char ret_text[INTEGRITY_TEXT_BYTES]);
