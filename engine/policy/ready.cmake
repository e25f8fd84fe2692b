# Makes the C file of the ready-made policies: cmake -DOUTPUT=FILE -DFOLDER=DIR -DNAMES=a:b:c -P ready.cmake
# A policy comes behind the one that it extends.

string(REPLACE ":" ";" NAMES "${NAMES}")
set(texts "")
set(rows "")
foreach(name ${NAMES})
	file(READ "${FOLDER}/${name}.yaml" hex HEX)
	string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
	string(MAKE_C_IDENTIFIER "${name}" word)
	string(APPEND texts "static const unsigned char ${word}_text[] = { ${bytes} };\n")
	string(APPEND rows "\t{ \"${name}\", (const char *)${word}_text, sizeof ${word}_text },\n")
endforeach()
file(WRITE "${OUTPUT}.new" "#include \"engine/policy/policies.h\"\n\n${texts}\n"
	"const struct policy_ready policies_ready[POLICIES_READY] = {\n${rows}};\n")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
