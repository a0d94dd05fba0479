{{/* What an account that wires may change of what its roles let it write: a dict of
component (who it is) and account (its user name). The hook and the controller are
held to the same. */}}
{{- define "gpuctl.policy.wiring" -}}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [kubevirt.io]
        apiVersions: ["*"]
        operations: [UPDATE]
        resources: [kubevirts]
      - apiGroups: [hco.kubevirt.io]
        apiVersions: ["*"]
        operations: [UPDATE]
        resources: [hyperconvergeds]
      - apiGroups: [kubevirt.io]
        apiVersions: ["*"]
        operations: [CREATE, UPDATE]
        resources: [virtualmachineinstances]
  matchConditions:
    - name: {{ .component }}
      expression: request.userInfo.username == {{ .account | squote }}
  # Evaluated when used: on CREATE there is no oldObject, and nothing uses it.
  variables:
    - name: ourAnnotations
      expression: "['gpuctl.dev/wired', 'gpuctl.dev/woken-at']"
    - name: annotationsBefore
      expression: "oldObject.metadata.?annotations.orValue({})"
    - name: annotationsAfter
      expression: "object.metadata.?annotations.orValue({})"
    - name: before
      expression: "oldObject.?spec.orValue({})"
    - name: after
      expression: "object.?spec.orValue({})"
    - name: configurationBefore
      expression: "variables.before.?configuration.orValue({})"
    - name: configurationAfter
      expression: "variables.after.?configuration.orValue({})"
    - name: developerBefore
      expression: "variables.configurationBefore.?developerConfiguration.orValue({})"
    - name: developerAfter
      expression: "variables.configurationAfter.?developerConfiguration.orValue({})"
    - name: virtualizationBefore
      expression: "variables.before.?virtualization.orValue({})"
    - name: virtualizationAfter
      expression: "variables.after.?virtualization.orValue({})"
  validations:
    - expression: request.operation != 'CREATE' || has(request.dryRun) && request.dryRun
      message: the gpuctl {{ .component }} may create an instance in a dry run only
    # What else an instance has, virt-api guards.
    - expression: >-
        request.operation == 'CREATE' ||
        object.metadata.?labels.orValue({}) == oldObject.metadata.?labels.orValue({}) &&
        object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([]) &&
        object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([]) &&
        variables.annotationsAfter.all(k, k in variables.ourAnnotations || k in variables.annotationsBefore && variables.annotationsBefore[k] == variables.annotationsAfter[k]) &&
        variables.annotationsBefore.all(k, k in variables.ourAnnotations || k in variables.annotationsAfter)
      message: of metadata the gpuctl {{ .component }} may change its own annotations only
    - expression: >-
        request.resource.resource != 'kubevirts' ||
        variables.after.all(k, k == 'configuration' || k in variables.before && variables.before[k] == variables.after[k]) &&
        variables.before.all(k, k == 'configuration' || k in variables.after) &&
        variables.configurationAfter.all(k, k in ['permittedHostDevices', 'developerConfiguration'] || k in variables.configurationBefore && variables.configurationBefore[k] == variables.configurationAfter[k]) &&
        variables.configurationBefore.all(k, k in ['permittedHostDevices', 'developerConfiguration'] || k in variables.configurationAfter) &&
        variables.developerAfter.all(k, k == 'featureGates' || k in variables.developerBefore && variables.developerBefore[k] == variables.developerAfter[k]) &&
        variables.developerBefore.all(k, k == 'featureGates' || k in variables.developerAfter)
      message: of a KubeVirt the gpuctl {{ .component }} may change permittedHostDevices and featureGates only
    # v1beta1 has the table in spec, v1 in spec.virtualization.
    - expression: >-
        request.resource.resource != 'hyperconvergeds' ||
        variables.after.all(k, k in ['permittedHostDevices', 'virtualization'] || k in variables.before && variables.before[k] == variables.after[k]) &&
        variables.before.all(k, k in ['permittedHostDevices', 'virtualization'] || k in variables.after) &&
        variables.virtualizationAfter.all(k, k == 'permittedHostDevices' || k in variables.virtualizationBefore && variables.virtualizationBefore[k] == variables.virtualizationAfter[k]) &&
        variables.virtualizationBefore.all(k, k == 'permittedHostDevices' || k in variables.virtualizationAfter)
      message: of a HyperConverged the gpuctl {{ .component }} may change permittedHostDevices only
{{- end }}
