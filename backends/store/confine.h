/* What a verb may still do once it has opened what it needs, before it reads what came from
 * outside. */
#pragma once

/* Files and memory: no program, no process, no socket, no mount. */
int confine_verb(void);
