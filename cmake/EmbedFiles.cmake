# Run as a script: writes a C++ source that holds the texts of files as the table of server/page.h.
#   cmake -D OUT=page_files.cc -D FOLDER=page -D "FILES=index.html style.css ..." -P EmbedFiles.cmake
separate_arguments(FILES)
set(out "// Made by cmake/EmbedFiles.cmake from the files in src/server/page.\n#include \"server/page.h\"\n\nnamespace baton::server {\n\n")
string(APPEND out "std::span<const PageFile> page_files() {\n  static constexpr PageFile kFiles[] = {\n")
foreach(file ${FILES})
  file(READ "${FOLDER}/${file}" text)
  string(APPEND out "      {\"${file}\", R\"page_file(${text})page_file\"},\n")
endforeach()
string(APPEND out "  };\n  return kFiles;\n}\n\n}  // namespace baton::server\n")
file(WRITE "${OUT}" "${out}")
