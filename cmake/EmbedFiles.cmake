# Run as a script: writes a C++ source that holds the texts of files as the table of src/ROOM/page.h.
#   cmake -D OUT=page_files.cc -D ROOM=server -D FOLDER=page -D "FILES=index.html style.css ..." -P EmbedFiles.cmake
separate_arguments(FILES)
set(out "// Made by cmake/EmbedFiles.cmake from the files in src/${ROOM}/page.\n#include \"${ROOM}/page.h\"\n\nnamespace baton::${ROOM} {\n\n")
string(APPEND out "std::span<const PageFile> page_files() {\n  static constexpr PageFile kFiles[] = {\n")
foreach(file ${FILES})
  file(READ "${FOLDER}/${file}" text)
  string(APPEND out "      {\"${file}\", R\"page_file(${text})page_file\"},\n")
endforeach()
string(APPEND out "  };\n  return kFiles;\n}\n\n}  // namespace baton::${ROOM}\n")
file(WRITE "${OUT}" "${out}")
