{{/* Labels of every object. */}}
{{- define "virtpod.labels" -}}
app.kubernetes.io/name: virtpod
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: virtpod
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels of a component's objects: (list . "virt-api"). */}}
{{- define "virtpod.componentLabels" -}}
{{ include "virtpod.labels" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
kubevirt.io: {{ index . 1 }}
{{- end }}

{{/* Labels of a component's Pods. No version: it would restart Pods whose image did not change. */}}
{{- define "virtpod.podLabels" -}}
app.kubernetes.io/name: virtpod
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/part-of: virtpod
kubevirt.io: {{ index . 1 }}
{{- end }}

{{/* An image reference: (list . .Values.images.virtApi). The digest wins over the tag. */}}
{{- define "virtpod.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $name := $image.repository -}}
{{- with $root.Values.images.registry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" .) $image.repository -}}
{{- end -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $name $image.digest }}
{{- else -}}
{{ printf "%s:%s" $name (default $root.Chart.AppVersion $root.Values.images.tag) }}
{{- end -}}
{{- end }}

{{/* What all our Pods say about themselves: (list . "virt-api" .Values.virtApi). */}}
{{- define "virtpod.podSpec" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $values := index . 2 -}}
serviceAccountName: {{ $name }}
priorityClassName: {{ include "virtpod.priorityClass" $root }}
{{- with $root.Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* Copies on different nodes and zones where there are some; on one node they still start. */}}
{{- define "virtpod.spread" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {kubevirt.io: {{ . }}}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {kubevirt.io: {{ . }}}
{{- end }}

{{- define "virtpod.priorityClass" -}}
{{ default "virtpod-cluster-critical" .Values.priorityClass.name }}
{{- end }}

{{/* A Pod and a container that need nothing of their node. The number is nobody's account. */}}
{{- define "virtpod.unprivilegedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "virtpod.unprivilegedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* With cert-manager, it writes the CA bundle; otherwise virt-controller does, and Helm leaves it alone. */}}
{{- define "virtpod.caAnnotations" -}}
{{- if eq .Values.certificates.provider "cert-manager" -}}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/virt-api-serving
{{- end -}}
{{- end }}

{{/* Changes with the text of the given templates, so that Pods which read them only at their start are replaced. */}}
{{- define "virtpod.podAnnotations" -}}
kubectl.kubernetes.io/default-container: {{ index . 0 }}
{{- with index . 1 }}
{{ toYaml . }}
{{- end }}
{{- end }}
