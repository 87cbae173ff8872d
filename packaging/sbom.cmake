# Writes gannet.cdx.json: the parts that are compiled into this build, as CycloneDX. It holds no time and
# no place, so equal builds have equal lists.

# The three numbers that a header defines.
function(header_version out header prefix)
  set(numbers "")
  foreach(part MAJOR MINOR RELEASE)
    file(STRINGS "${header}" line REGEX "^#define ${prefix}_${part} +[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND numbers "${number}")
  endforeach()
  list(JOIN numbers "." text)
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

set(sbom_parts "")
set(sbom_names "")
# One part: NAME VERSION LICENCE TYPE TEXT
function(sbom_part name version licence type text)
  if(licence MATCHES "^LicenseRef")
    set(licence_json "{\"name\": \"${licence}\"}")
  else()
    set(licence_json "{\"id\": \"${licence}\"}")
  endif()
  string(APPEND sbom_parts "${sbom_separator}
    {
      \"type\": \"${type}\",
      \"bom-ref\": \"${name}\",
      \"name\": \"${name}\",
      \"version\": \"${version}\",
      \"description\": \"${text}\",
      \"licenses\": [{\"license\": ${licence_json}}]
    }")
  string(APPEND sbom_names "${sbom_separator} \"${name}\"")
  set(sbom_parts "${sbom_parts}" PARENT_SCOPE)
  set(sbom_names "${sbom_names}" PARENT_SCOPE)
  set(sbom_separator "," PARENT_SCOPE)
endfunction()

set(sbom_separator "")
header_version(xxhash_version "${GANNET_XXHASH_INCLUDE}/xxhash.h" XXH_VERSION)
sbom_part(xxHash "${xxhash_version}" BSD-2-Clause library
          "XXH3, one header, compiled into the library: sums of files")
if(GANNET_HAS_CUDA)
  sbom_part(cudart_static "${CMAKE_CUDA_COMPILER_VERSION}" "LicenseRef-NVIDIA-CUDA-EULA" library
            "CUDA runtime, linked into the shared object")
  sbom_part(cccl "${CMAKE_CUDA_COMPILER_VERSION}" Apache-2.0 library
            "CUB and Thrust, headers of the CUDA toolkit, compiled into the library")
endif()
if(GANNET_HAS_TOOL)
  sbom_part(CLI11 "${CLI11_VERSION}" BSD-3-Clause library "compiled into the tools: options")
  sbom_part(nlohmann_json "${nlohmann_json_VERSION}" MIT library "compiled into the tools: JSON")
endif()

string(UUID sbom_serial NAMESPACE 6ba7b811-9dad-11d1-80b4-00c04fd430c8 TYPE SHA1
       NAME "gannet ${PROJECT_VERSION}${sbom_parts}")
file(CONFIGURE OUTPUT gannet.cdx.json @ONLY CONTENT [[
{
  "bomFormat": "CycloneDX",
  "specVersion": "1.5",
  "serialNumber": "urn:uuid:@sbom_serial@",
  "version": 1,
  "metadata": {
    "component": {
      "type": "library",
      "bom-ref": "gannet",
      "name": "gannet",
      "version": "@PROJECT_VERSION@",
      "description": "@PROJECT_DESCRIPTION@",
      "licenses": [{"license": {"id": "Apache-2.0"}}]
    }
  },
  "components": [@sbom_parts@
  ],
  "dependencies": [
    {"ref": "gannet", "dependsOn": [@sbom_names@]}
  ]
}
]])
