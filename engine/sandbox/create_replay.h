/* A create that is asked again under its request id. */
#pragma once

struct part;

/* error, record: of record_begin(). Ends the part. */
void create_replay(struct part *part);
